"""The pipeline on Spark: sessions, sources, the parallel rebuild. Nothing else imports pyspark."""
