"""Open a store, and find out its facts: parts, file sizes, version, the end of its log, replicas."""
