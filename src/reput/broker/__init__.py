"""What a broker does beside its store: topics, groups, offsets, locks, retries, delayed delivery. No sockets."""
