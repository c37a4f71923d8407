"""The destinations of exports: a folder of Parquet files, an Iceberg table, a Delta table."""
