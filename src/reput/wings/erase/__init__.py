"""Erase messages from stores and archives, and write a record of each erasure."""
