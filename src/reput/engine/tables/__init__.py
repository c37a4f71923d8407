"""Read messages as Arrow tables: plan which ranges to read, filter rows, decode columns. Independent of Spark."""
