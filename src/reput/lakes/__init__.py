"""Messages into lake tables and JSON Lines: tasks over ranges of the log, one commit of data and marks together."""
