r"""The properties string of a record, and the keys and tags in it.

Mirrors `MessageDecoder.messageProperties2String`, `.string2messageProperties` (4.9.3), `MessageConst`,
`MessageExtBrokerInner.tagsString2tagsCode`, and the reading in `CommitLog.checkMessageAndReturnSize`. The names of
system topics come from `TopicValidator` and `MixAll`.

    name \x01 value \x02 name \x01 value

A chunk between two \x02 counts only if its first \x01 is neither its first nor its last character. So empty names and
values are dropped, and a value may contain further \x01. Of several chunks with one name, the last one wins.

In RocketMQ: PROPERTY_KEYS, PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from reput.format.java_string import hash_code, hash_map_order, parse_int32, wrap_int64

NAME_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"
KEY_SEPARATOR = " "

LEAST_ID_DIGITS = 32
ID_DIGITS = frozenset("0123456789ABCDEF")

KEYS = "KEYS"
TAGS = "TAGS"
UNIQ_KEY = "UNIQ_KEY"
_UNIQ_KEY_NAME = f"{UNIQ_KEY}{NAME_SEPARATOR}"
DELAY = "DELAY"
REAL_TOPIC = "REAL_TOPIC"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_DELIVER_MS, TIMER_DELAY_MS = "TIMER_DELIVER_MS", "TIMER_DELAY_MS"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
"""Properties by which a client states the delivery time of a message (5.x)."""
TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS = "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_RECALLED = "TIMER_DEL_UNIQKEY"
"""Property of a recall: the message to recall, see `timer_log.recall_key`."""
FIRST_POP_TIME = "1ST_POP_TIME"
"""Property of a redelivered message that was popped and not acknowledged: the time of its first pop."""
REAL_QUEUE_ID = "REAL_QID"
WAIT = "WAIT"
CLUSTER = "CLUSTER"
PREPARED = "TRAN_MSG"
PRODUCER_GROUP = "PGROUP"
RETRY_TOPIC = "RETRY_TOPIC"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
DEAD_LETTER_ORIGIN_ID = "DLQ_ORIGIN_MESSAGE_ID"
TRANSACTION_ID = "__transactionId__"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
HALF_OFFSET = "TRANS_OFFSET"
"""In an op message of transactions in RocksDB (5.4): the physical offset of the half message that it decides."""
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
MULTI_DISPATCH_SEPARATOR = ","
SHARDING_KEY = "__SHARDINGKEY"
PRIORITY = "_SYS_MSG_PRIORITY_"
"""The priority of a message (5.4). A broker stores the message in the queue of this number, or in the last queue."""
LITE_TOPIC = "__LITE_TOPIC"
"""The Lite topic of a message (5.4). A broker adds the message to the light queue of `lite_queue_name`."""
_BUCKETS_OF_FIVE = 128
"""The capacity with which a 5.x broker creates a map of decoded properties. It determines their order."""
LMQ_PREFIX = "%LMQ%"
_LITE_SEPARATOR = "$"
LITE_PREFIX = f"{LMQ_PREFIX}{_LITE_SEPARATOR}"
"""The beginning of names of light queues that belong to Lite topics (`LiteUtil.LITE_TOPIC_PREFIX`, 5.4)."""
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
"""The topic in which timed messages of 5.x wait."""
RETRY_TOPIC_PREFIX = "%RETRY%"
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
DEAD_LETTER_TOPIC_PREFIX = "%DLQ%"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
DISCARDED_HALF_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
ROCKSDB_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_OP_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
"""The topics of half messages and op messages if a 5.4 broker keeps transactions in RocksDB (`transRocksDBEnable`)."""
HALF_TOPICS = (HALF_TOPIC, ROCKSDB_HALF_TOPIC)
OP_TOPICS = (OP_TOPIC, ROCKSDB_OP_TOPIC)
DEFAULT_TOPIC = "TBW102"
"""The topic whose settings a broker copies when the first send creates a topic (`AUTO_CREATE_TOPIC_KEY_TOPIC`)."""
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
REPLY_TOPIC = "_REPLY_TOPIC"
"""The topic for replies to requests is named after the cluster, plus this suffix (`MixAll.REPLY_TOPIC_POSTFIX`)."""
BENCHMARK_TOPIC = "BenchmarkTest"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
SYSTEM_TOPICS = frozenset(
    {
        DEFAULT_TOPIC, SCHEDULE_TOPIC, BENCHMARK_TOPIC, HALF_TOPIC, TRACE_TOPIC, OP_TOPIC,
        DISCARDED_HALF_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC,
    }
)  # fmt: skip
"""`TopicValidator.SYSTEM_TOPIC_SET` (tag rocketmq-all-4.9.3)."""
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"
"""The name under which RocksDB has the last dispatched message (`RMQ_SYS_ROCKSDB_OFFSET_TOPIC`)."""
INTERNAL_TOPICS = SYSTEM_TOPICS.union(HALF_TOPICS, OP_TOPICS, (CHECKPOINT_TOPIC,))
"""The system topics of all versions."""
NOT_ALLOWED_SEND_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC, *HALF_TOPICS, *OP_TOPICS, DISCARDED_HALF_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC,
    }
)  # fmt: skip
"""`TopicValidator.NOT_ALLOWED_SEND_TOPIC_SET` (5.4; in 4.9.3 it has only SCHEDULE_TOPIC)."""
MEMBERS_TOPIC_PREFIX = f"{SYSTEM_TOPIC_PREFIX}SYNC_BROKER_MEMBER_"
"""`TopicValidator.SYNC_BROKER_MEMBER_GROUP_PREFIX`. The name of the broker follows."""
TRACE_TOPIC_PREFIX = f"{SYSTEM_TOPIC_PREFIX}TRACE_DATA_"
"""`TraceConstants.TRACE_TOPIC_PREFIX`. Clients may send to system topics with this prefix."""


def decode_properties(text: str) -> dict[str, str]:
    """Return names and values as the broker's parser reads them, in order of first appearance."""
    properties = {}
    for chunk in text.split(PROPERTY_SEPARATOR):
        separator = chunk.find(NAME_SEPARATOR)
        # `string2messageProperties` skips chunks without a name or without a value.
        if 0 < separator < len(chunk) - 1:
            properties[chunk[:separator]] = chunk[separator + 1 :]
    return properties


def unique_keys(text: str) -> list[str]:
    """Return every value of UNIQ_KEY, in order. Parsers and the index use the last one.

    If a 5.x client sends a list of messages in one call, it creates an id for each message and one for the list. A
    broker appends the list's properties to the properties of each message, so the message's own id comes first. The
    send result contains the message's own id.
    """
    chunks = (chunk.partition(NAME_SEPARATOR) for chunk in text.split(PROPERTY_SEPARATOR))
    return [value for name, _, value in chunks if name == UNIQ_KEY and value]


def replaced_ids(text: str) -> list[str]:
    """Return all values of UNIQ_KEY except the last one, in order. The last one replaces them."""
    # Most records have one UNIQ_KEY. Split the text only if the name occurs twice.
    return unique_keys(text)[:-1] if text.count(_UNIQ_KEY_NAME) > 1 else []


def may_be_replaced_id(key: str) -> bool:
    """Return whether a key has the form of an id that a client creates: 32 or more upper-case hexadecimal digits.

    If a message has several UNIQ_KEYs, the last one replaces the earlier ones (see `unique_keys`). All replaced ids
    have this form.
    """
    return len(key) >= LEAST_ID_DIGITS and ID_DIGITS.issuperset(key)


def encode_properties(properties: Mapping[str, str], order: Iterable[str] | None = None) -> str:
    """Return the properties string that a broker stores, without a separator at the end.

    `order` lists the names in the order of writing; None means the order of the mapping.
    """
    names = properties if order is None else order
    return PROPERTY_SEPARATOR.join(
        # A list is faster than a generator here.
        [f"{name}{NAME_SEPARATOR}{properties[name]}" for name in names]
    )


def stored_order(
    names: tuple[str, ...], is_five: bool = False, without: Collection[str] = ()
) -> tuple[str, ...]:
    """Return names in the order in which a broker encodes a map that it has decoded from a properties string.

    Args:
        names: Names in the order of their insertion.
        is_five: Whether the broker is a 5.x broker, which creates such a map with 128 buckets.
        without: Names that the broker removed before. They still count for the size of the hash table.
    """
    order = hash_map_order(names, _BUCKETS_OF_FIVE) if is_five else hash_map_order(names)
    return tuple(name for name in order if name not in without)


def allows_light_queues(topic: str) -> bool:
    """Return whether messages of a topic may also be in light queues (LMQ).

    This is `MixAll.topicAllowsLMQ`, tag rocketmq-all-5.3.3.
    """
    return not topic.startswith((RETRY_TOPIC_PREFIX, "rmq_sys_")) and topic != SCHEDULE_TOPIC


def lite_queue_name(parent_topic: str, lite_topic: str) -> str:
    """Return the name of the light queue of a Lite topic (`LiteUtil.toLmqName`, 5.4).

    Its messages are stored under the parent topic.
    """
    return f"{LITE_PREFIX}{parent_topic}{_LITE_SEPARATOR}{lite_topic}"


def lite_topic_of(queue_name: str) -> tuple[str, str] | None:
    """Return parent topic and Lite topic of a light queue; None for any other queue.

    In RocketMQ: `LiteUtil.getParentTopic`, `getLiteTopic`.
    """
    if not queue_name.startswith(LITE_PREFIX):
        return None
    parts = queue_name[len(LITE_PREFIX) :].split(_LITE_SEPARATOR)
    return (parts[0], parts[1]) if len(parts) == 2 and all(parts) else None


def index_keys(properties: Mapping[str, str]) -> list[str]:
    """Return the keys of a message's index entries, in order: the unique key, then the KEYS with repetitions."""
    unique_key = properties.get(UNIQ_KEY)
    keys = [unique_key] if unique_key else []
    return keys + split_keys(properties.get(KEYS, ""))


def split_keys(text: str) -> list[str]:
    """Return the keys in a KEYS property."""
    return [key for key in text.split(KEY_SEPARATOR) if key]


def tags_code(
    topic: str, properties: Mapping[str, str], store_timestamp: int, delay_table_ms: list[int]
) -> int:
    """Return the tags code of a message, by which ConsumeQueue entries are filtered.

    It is the hash of TAGS. For a delayed message, it is the due time. Raises ValueError if the DELAY of a scheduled
    message is not an int32: the broker's reader fails there as well.

    In RocketMQ: computeDeliverTimestamp.
    """
    delay = properties.get(DELAY)
    if topic == SCHEDULE_TOPIC and delay is not None:
        # The broker treats a higher level as the highest one. A level of 0 or less means no delay.
        level = min(parse_int32(delay), len(delay_table_ms))
        if level > 0:
            return wrap_int64(store_timestamp + delay_table_ms[level - 1])
    return hash_code(properties.get(TAGS, ""))
