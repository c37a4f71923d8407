"""Encode and decode every file of a RocketMQ store, without I/O: one module per file type.

Each module is also the specification of its file. docs/format/ describes the same formats in prose, with worked
examples.
"""
