"""Write stores of 5.x in tests: batch topics, inner batches, and contents of their queues."""

import json
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from zlib import crc32

from reput.engine.writer.put.message import Message
from tests.oracle.records import Record
from tests.small import SMALL

CONFIG = replace(
    SMALL, commit_log_file_bytes=1 << 14, queue_entries=40, hash_slots=64, index_items=300,
    batch_queue_file_bytes=460, store_version="5.3", append_record_crc=True,
)  # fmt: skip
_ENTRY = struct.Struct(">qiqqqhii")


def write_topics(store: Path, *batch_topics: str) -> None:
    """Write the config/topics.json of a broker that keeps these topics in batch queues."""
    table = {topic: {"attributes": {"queue.type": "BatchCQ"}} for topic in batch_topics}
    (store / "config").mkdir(parents=True, exist_ok=True)
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))


def inner_batch(
    topic: str, bodies: Sequence[bytes], queue_id: int = 0, keys: Sequence[str] = ()
) -> Message:
    """Return an inner batch as a 5.x client and broker create it. Message n has the key keys[n], if that exists."""
    parts = []
    for number, body in enumerate(bodies):
        key = f"KEYS\x01{keys[number]}\x02" if number < len(keys) else ""
        properties = f"UNIQ_KEY\x01inner-{topic}-{number}\x02{key}".encode()
        size = 20 + len(body) + 2 + len(properties)
        head = struct.pack(">iIIii", size, 0xDAA320A7, crc32(body) & 0x7FFFFFFF, 0, len(body))
        parts.append(head + body + struct.pack(">h", len(properties)) + properties)
    return Message(
        topic, b"".join(parts), queue_id=queue_id, sys_flag=64 | 128,
        properties={"INNER_NUM": str(len(bodies))},
    )  # fmt: skip


def batch_queue_bytes(records: Sequence[Record], file_bytes: int) -> dict[str, bytes]:
    """Return the files of one batch queue, by name, for its records: a second implementation of the rule."""
    entries = b""
    for record in records:
        # Any page of an unflushed record may be lost, including the page with its properties.
        stated = record.properties.get("INNER_NUM", "1")
        count = int(stated) if record.sys_flag & 128 else 1
        entries += _ENTRY.pack(
            record.physical_offset, record.total_size, record.tags_code, record.store_timestamp,
            record.queue_offset, count, -1, 0,
        )  # fmt: skip
    return {
        f"{at:020d}": entries[at : at + file_bytes].ljust(file_bytes, b"\0")
        for at in range(0, len(entries), file_bytes)
    }


def batch_entries(store: Path, topic: str, queue_id: int) -> list[int]:
    """Return base offsets in a batch queue."""
    files = sorted((store / "batchconsumequeue" / topic / str(queue_id)).iterdir())
    data = b"".join(path.read_bytes() for path in files)
    rows = [_ENTRY.unpack_from(data, at) for at in range(0, len(data), _ENTRY.size)]
    return [row[4] for row in rows if row[1]]
