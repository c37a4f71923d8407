"""Tombstones: records of erased messages, marked by a property.

A tombstone keeps its record's length, header and topic. Its body is zeros. Of the properties, it keeps those on which
queues depend: destination and due time of a delayed message, the queue offsets of a batch, and the further queues
(INNER_MULTI_DISPATCH) that get an entry for the message.
"""

from __future__ import annotations

from reput.format import properties

ERASED_PROPERTY = "REPUT_ERASED"
"""Name of the property that marks an erased message. Its value is the id of the erasure, padded with spaces."""

KEPT_PROPERTIES = (
    properties.DELAY,
    properties.REAL_TOPIC,
    properties.REAL_QUEUE_ID,
    properties.TIMER_OUT_MS,
    properties.TIMER_DELIVER_MS,
    properties.TIMER_DELAY_MS,
    properties.TIMER_DELAY_SEC,
    properties.TIMER_ENQUEUE_MS,
    properties.TIMER_DEQUEUE_MS,
    properties.TIMER_ROLL_TIMES,
    "TIMER_DELAY_LEVEL",
    properties.INNER_NUM,
    properties.INNER_BASE,
    properties.INNER_MULTI_DISPATCH,
    properties.INNER_MULTI_QUEUE_OFFSET,
    properties.PREPARED,
    properties.PRODUCER_GROUP,
    properties.TRANSACTION_CHECK_TIMES,
    "TRAN_PREPARED_QUEUE_OFFSET",
    properties.RETRY_TOPIC,
    properties.WAIT,
    properties.CLUSTER,
)
"""Properties that a tombstone keeps. Without REAL_QID, a broker would not deliver later messages of the delay level."""
