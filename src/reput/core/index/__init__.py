"""Search and write indexes of keys: IndexFiles, an archive's index, and the index in RocksDB.

An item is an entry of an IndexFile: the hash of a key, the physical offset of a message, and a link to the previous
item of the same slot. A chain is the series of items to which a slot leads. A part of an index covers a range of the
log if it has an entry for every key of every message in this range.
"""
