"""The three offsets of a RocketMQ store, kept apart by type."""

from __future__ import annotations

from typing import NewType

PhysicalOffset = NewType("PhysicalOffset", int)
"""Byte position in the CommitLog, counted over all its files."""

QueueOffset = NewType("QueueOffset", int)
"""Number of an entry in a queue, from 0."""

LogicalOffset = NewType("LogicalOffset", int)
"""Byte position in a ConsumeQueue, counted over all its files: QueueOffset * 20."""
