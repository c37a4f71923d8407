"""Messages as Arrow tables: columns, sources, filters. Knows nothing of Spark."""
