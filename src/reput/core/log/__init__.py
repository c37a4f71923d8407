"""Read the CommitLog.

A walk reads record after record, from one record to the next. A scan is a walk that yields batches of messages. If a
walk expects a record, but finds other bytes, these bytes are damage or the end of the log. A torn end consists of such
bytes after the last record. A blank is the record that fills the end of a file. A hole is a missing log file, or a
range of a sparse file that is not stored. A split is a range of a file for one task. A record is verifiable if it
states its own physical offset, and its lengths and its CRC are right.
"""
