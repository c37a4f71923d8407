"""What the log derives, compared with what the index files of a store hold.

Check explains every difference, and repair plans from that. A proof turns missing items into gaps of what an IndexFile
covers. Diff pairs the entries of two stores with the same functions. Recovery has matching of its own
(`reput.recovery.queue_matching`).
"""
