"""Find messages by key, by id, by offset or by time. Every result reports its coverage."""
