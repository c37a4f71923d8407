"""Find how a store's indexes differ from its log, and correct them when the store is opened for writing.

An entry is part of a ConsumeQueue, an item is part of an IndexFile. Dispatch is RocketMQ's step that writes the entries
and items of a stored message.
"""
