"""Put messages: check, encode and write them at the end of the log."""
