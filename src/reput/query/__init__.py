"""Finding messages: by key, by id, by offset, by time. Every result reports its coverage."""
