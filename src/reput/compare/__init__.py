"""Compare the entries that the log derives with the entries in a store's index files.

Check explains every difference, and repair plans from that. A proof turns missing items into gaps of an IndexFile's
coverage. Diff pairs the entries of two stores with the same functions. Recovery and rebuilds give messages their
numbers by the rule in `placement`.
"""
