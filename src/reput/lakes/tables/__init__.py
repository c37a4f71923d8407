"""Where exports go: a folder of Parquet files, an Iceberg table, a Delta table."""
