"""Keep the state that a broker has besides its store: topics, groups, offsets, locks, retries, delayed delivery.

This package opens no sockets.

A prepared (half) message belongs to an undecided transaction. A timer message (5.x) states the time of its delivery.
"""
