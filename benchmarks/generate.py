"""Create the benchmark store: a CommitLog of 380-byte messages.

Messages are created in arrays, as fast as the disk can write them. Each message has a unique key of 32 characters, one
business key and a tag. Messages are distributed over the queues of a topic in turn, so queue offsets have no gaps. One
message in a hundred has the topic `topic-rare`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from reput.format.commit_log import MESSAGE_MAGIC, MessageExt, encode, encode_blank
from reput.format.file_names import COMMIT_LOG_FOLDER, offset_file_name
from reput.format.host import Host

MESSAGE_BYTES = 380
FIRST_TIMESTAMP = 1_700_000_000_000
MESSAGES_PER_MS = 10
QUEUES = 4
TOPICS = 25
RARE_TOPIC = "topic-rare"
_CHUNK = 200_000
_UNIQUE = "0" * 32
_ORDER = "order-" + "0" * 10
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)


def unique_key(number: int) -> str:
    """Return the unique key of message `number`."""
    return f"{number * 0x9E3779B97F4A7C15 % (1 << 64):016X}{number:016X}"


def order_key(number: int) -> str:
    """Return the business key of message `number`. Three consecutive messages have the same business key."""
    return f"order-{number // 3:010d}"


def topic_of(number: int) -> str:
    return RARE_TOPIC if number % 100 == 99 else f"topic-{number % 100 % TOPICS:04d}"


def write_store(
    path: Path, total_bytes: int, file_bytes: int = 1 << 30, ms_per_message: int = 0
) -> int:
    """Write `path`/commitlog of about `total_bytes`. Return the number of messages.

    Store times are `ms_per_message` apart. If that is 0, each millisecond has MESSAGES_PER_MS messages.
    """
    folder = path / COMMIT_LOG_FOLDER
    folder.mkdir(parents=True)
    per_file = (file_bytes - 8) // MESSAGE_BYTES
    messages = total_bytes // MESSAGE_BYTES
    for number, first in enumerate(range(0, messages, per_file)):
        stop = min(first + per_file, messages)
        begin = number * file_bytes
        with open(folder / offset_file_name(begin), "wb") as file:
            for start in range(first, stop, _CHUNK):
                count = min(_CHUNK, stop - start)
                offset = begin + (start - first) * MESSAGE_BYTES
                file.write(records(start, count, offset, ms_per_message))
            if stop < messages:
                file.write(encode_blank(file_bytes - per_file * MESSAGE_BYTES))
            file.truncate(file_bytes)
    return messages


def _template() -> bytes:
    properties = (
        f"KEYS\x01{_ORDER}\x02UNIQ_KEY\x01{_UNIQUE}\x02CLUSTER\x01DefaultCluster\x02TAGS\x01paid"
    )
    message = MessageExt(
        topic="topic-0000", queue_id=0, queue_offset=0, physical_offset=0, size_bytes=0, flag=0,
        sys_flag=0, body_crc=0, born_timestamp=FIRST_TIMESTAMP, born_host=Host("10.0.0.1", 40001),
        store_timestamp=FIRST_TIMESTAMP, store_host=Host("10.0.0.2", 10911), reconsume_times=0,
        prepared_transaction_offset=0, body=b"", properties_bytes=properties.encode(), magic=MESSAGE_MAGIC,
    )  # fmt: skip
    spare = MESSAGE_BYTES - len(encode(message))
    body = (b'{"order":"benchmark","amount":12.5,"note":"' + b"x" * spare)[:spare]
    fields = {name: getattr(message, name) for name in MessageExt.__dataclass_fields__}
    return encode(MessageExt(**{**fields, "body": body}))


def records(first: int, count: int, physical_offset: int, ms_per_message: int = 0) -> bytes:
    """Return the records of `count` messages from number `first` on, for the log at `physical_offset`."""
    template = _template()
    rows = np.tile(np.frombuffer(template, np.uint8), (count, 1))
    number = np.arange(first, first + count, dtype=np.int64)
    turn = number // 100
    rows[:, 12:16] = _big_endian(turn % QUEUES, ">i4")
    in_turn = number % 100
    per_turn = np.where(in_turn == 99, 1, np.where(in_turn % TOPICS == TOPICS - 1, 3, 4))
    queue_offset = turn // QUEUES * per_turn + np.where(in_turn == 99, 0, in_turn // TOPICS)
    rows[:, 20:28] = _big_endian(queue_offset, ">i8")
    offsets = physical_offset + np.arange(count, dtype=np.int64) * MESSAGE_BYTES
    rows[:, 28:36] = _big_endian(offsets, ">i8")
    after = number * ms_per_message if ms_per_message else number // MESSAGES_PER_MS
    timestamp = _big_endian(FIRST_TIMESTAMP + after, ">i8")
    rows[:, 40:48] = timestamp
    rows[:, 56:64] = timestamp
    topic = template.index(b"topic-0000")
    rows[:, topic + 6 : topic + 10] = _decimal(in_turn % TOPICS, 4)
    rows[in_turn == 99, topic : topic + 10] = np.frombuffer(RARE_TOPIC.encode(), np.uint8)
    order = template.index(_ORDER.encode()) + 6
    rows[:, order : order + 10] = _decimal(number // 3, 10)
    unique = template.index(b"UNIQ_KEY\x01") + 9
    scrambled = number.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    rows[:, unique : unique + 16] = _hexadecimal(scrambled)
    rows[:, unique + 16 : unique + 32] = _hexadecimal(number.astype(np.uint64))
    return rows.tobytes()


def _big_endian(values: npt.NDArray[np.int64], kind: str) -> npt.NDArray[np.uint8]:
    stored = values.astype(kind)
    return stored.view(np.uint8).reshape(len(values), stored.itemsize)


def _decimal(values: npt.NDArray[np.int64], digits: int) -> npt.NDArray[np.uint8]:
    powers = 10 ** np.arange(digits - 1, -1, -1, dtype=np.int64)
    return (values[:, None] // powers % 10 + 48).astype(np.uint8)


def _hexadecimal(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
    data = values.astype(">u8").view(np.uint8).reshape(len(values), 8)
    return _HEX[np.stack((data >> 4, data & 15), axis=2).reshape(len(values), 16)]
