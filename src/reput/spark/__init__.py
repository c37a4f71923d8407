"""The pipeline on Spark: sessions, sources and the parallel rebuild. The only room that imports pyspark."""
