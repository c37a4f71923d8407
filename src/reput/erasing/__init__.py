"""Erase messages from stores and archives, and record each erasure."""
