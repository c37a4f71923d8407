"""Bytes <-> values of every file of a RocketMQ 4.9.3 store, without I/O: one module per file type.

Each module is also the specification of its file; docs/format/ tells the same in prose with worked examples.
"""
