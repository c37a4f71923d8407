"""Export messages to lake tables and JSON Lines: tasks over ranges of the log, and one commit of data and marks."""
