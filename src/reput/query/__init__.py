"""Finding messages: by key, by id, by offset, by time. Every result says what it covered."""
