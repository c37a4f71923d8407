"""The state of a broker beside its store: topics, groups, offsets, locks, retries, delayed delivery.

This package opens no sockets.
"""
