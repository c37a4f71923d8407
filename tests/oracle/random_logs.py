"""Random logs from a seed, with all structures that are difficult for a walk, a hash or a parser."""

from collections import Counter
from dataclasses import dataclass, replace
from random import Random

from tests.oracle.forge import (
    BLANK_BYTES,
    BORN_HOST,
    STORE_HOST,
    Files,
    Host,
    LogForge,
    RecordFields,
    body_position,
    encode_blank,
    encode_properties,
    encode_record,
)
from tests.oracle.records import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    TRANSACTION_COMMIT,
    TRANSACTION_NONE,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)

TOPICS: tuple[str | bytes, ...] = (
    *("orders", "orders", "orders", "%RETRY%group", "SCHEDULE_TOPIC_XXXX", "a", "a#b"),
    *("中文主题", "emoji-😀", b"broken-\xff\xed\xa0\x80\xe4\xb8", "T" * 127),
)
LONG_TOPIC = "主" * 60  # 180 bytes: only records of magic V2 can contain such a long topic
KEYS = (
    *(
        "K1",
        "K2",
        "K3",
        "order-1",
        "order-2",
        "b#c",
        "c",
        "AaAa",
        "BBBB",
        "AaBB",
        "polygenelubricants",
    ),
    *("中文", "😀😀", "é", "tab\there", "nl\nhere", "\x00", "k" * 300),
)
BROKEN_KEYS = (b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xff\xfe", b"\xe4\xb8 \xad")
HOSTS: tuple[Host, ...] = (BORN_HOST, STORE_HOST, (bytes(15) + b"\1", 1), (bytes(range(16)), 65535))
ODD_PROPERTIES = (
    *(b"\x01", b"\x02", b"\x02\x02\x01\x02", b"KEYS\x01\x02UNIQ_KEY\x01", b"\x01KEYS\x01x"),
    *(b"KEYS\x01one\x02KEYS\x01two\x02", b"KEYS\x01a\x01b\x02TAGS", b"KEYS\x02x\x01y"),
    *(b"UNIQ_KEY\x01u\xffu\x02KEYS\x01\xc3 \xc3\x28", b"TAGS\x01\xe4\xb8\x02A\x01b", b"K\xff\x01v"),
)
TRANSACTIONS = (
    *(TRANSACTION_NONE,) * 12,
    *(TRANSACTION_PREPARED, TRANSACTION_COMMIT, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK),
)
FREE_AT_THE_END = (8, 9, 10, 12, 15, 16, 20, 100)


@dataclass(frozen=True)
class LogOptions:
    """The contents of a random log.

    `queue_start` is the first queue offset of every queue, as if earlier messages had expired.
    `irregular` adds queue offsets that repeat, jump or start again, and records that state another
    physical offset than their own. `multi_dispatch` adds INNER_MULTI_DISPATCH properties.
    """

    records: int = 200
    file_bytes: int = 4096
    start_offset: int = 0
    queue_start: int = 0
    magic_v2: bool = True
    irregular: bool = False
    multi_dispatch: bool = False


@dataclass(frozen=True)
class RandomLog:
    """Log files, the places of their records, and the (offset, size) of their BLANK records."""

    files: Files
    offsets: list[int]
    blanks: list[tuple[int, int]]
    end_offset: int


def random_log(seed: int, options: LogOptions | None = None) -> RandomLog:
    """Return the log of a seed, which is always the same; options determine the rest."""
    return _Generator(Random(seed), options or LogOptions()).log()


class _Generator:
    def __init__(self, random: Random, options: LogOptions) -> None:
        self.random = random
        self.options = options
        self.forge = LogForge(options.file_bytes, options.start_offset)
        self.next_offsets: Counter[tuple[str | bytes, int]] = Counter()
        self.now_ms = 1_700_000_000_000

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def log(self) -> RandomLog:
        while len(self.forge.offsets) < self.options.records:
            self._put_one()
        forge = self.forge
        return RandomLog(forge.files(), forge.offsets, forge.blanks, forge.end_offset)

    def _put_one(self) -> None:
        if self.chance(0.005):
            self.forge.end_file()
        fields = self._fields()
        # Sometimes leave room for little more than a BLANK. Random records rarely do.
        if self.forge.room < self.options.file_bytes // 4 and self.chance(0.5):
            free = self.random.choice(FREE_AT_THE_END)
            if len(encode_record(replace(fields, body=b""))) <= self.forge.room - free:
                self._queue_forward(fields)
                self.forge.leave(free, fields)
                return
        size = len(encode_record(fields))
        if size + BLANK_BYTES > self.options.file_bytes:
            return
        self._queue_forward(fields)
        offset = self.forge.make_room(size, rest=self._behind_a_blank(size))
        fields = replace(fields, physical_offset=offset)
        if fields.body and self.chance(0.2):
            fields = self._with_forgery(fields)
        if self.options.irregular and self.chance(0.05):
            fields = replace(fields, physical_offset=max(0, offset + self.random.randint(-999, 99)))
        self.forge.put_bytes(encode_record(fields))

    def _behind_a_blank(self, size: int) -> bytes:
        """Sometimes add a record with its right offset, after the end of its file."""
        if size + BLANK_BYTES <= self.forge.room or self.chance(0.5):
            return b""
        offset = self.forge.end_offset + BLANK_BYTES
        return encode_record(RecordFields(topic="forged", physical_offset=offset))

    def _with_forgery(self, fields: RecordFields) -> RecordFields:
        """Return a body of the same length that contains a record (or BLANK) with the right offset."""
        at = self.random.randrange(len(fields.body))
        offset = fields.physical_offset + body_position(fields) + at
        forged = self.random.choice(
            (
                encode_record(RecordFields("forged", b"x", {"KEYS": "K1"}, physical_offset=offset)),
                encode_blank(64),
                MAGIC_V1.to_bytes(4, "big"),
                b"\0\0\0\x7f" + MAGIC_BLANK.to_bytes(4, "big"),
            )
        )
        body = (fields.body[:at] + forged + fields.body[at + len(forged) :])[: len(fields.body)]
        return replace(fields, body=body)

    def _fields(self) -> RecordFields:
        random, options = self.random, self.options
        v2 = options.magic_v2 and self.chance(0.1)
        self.now_ms += random.choice((0, 0, 1, 1, 7, 999, 60_000, -5, -3_000))
        topic = LONG_TOPIC if v2 and self.chance(0.5) else random.choice(TOPICS)
        queue_id = random.choice((0, 0, 1, 3))
        transaction = random.choice(TRANSACTIONS)
        body_bytes = random.choice((0, 1, 20, 150, 150, 300))
        return RecordFields(
            topic=topic,
            body=random.randbytes(body_bytes),
            properties=self._properties(topic),
            queue_id=queue_id,
            queue_offset=self._queue_offset(topic, queue_id, transaction),
            sys_flag=transaction | random.choice((0, 0, 1, 2)),
            flag=random.randint(-(2**31), 2**31 - 1),
            born_timestamp=self.now_ms - 3,
            born_host=random.choice(HOSTS),
            store_timestamp=self.now_ms,
            store_host=random.choice(HOSTS),
            reconsume_times=random.choice((0, 0, 16)),
            magic=MAGIC_V2 if v2 else MAGIC_V1,
        )

    def _queue_offset(self, topic: str | bytes, queue_id: int, transaction: int) -> int:
        if transaction in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
            return 0
        queue_offset = self.options.queue_start + self.next_offsets[topic, queue_id]
        if self.options.irregular and self.chance(0.1):
            return max(0, queue_offset + self.random.choice((-queue_offset, -2, -1, 1, 5, 400)))
        return queue_offset

    def _queue_forward(self, fields: RecordFields) -> None:
        if fields.sys_flag & TRANSACTION_ROLLBACK in (TRANSACTION_NONE, TRANSACTION_COMMIT):
            self.next_offsets[fields.topic, fields.queue_id] += 1

    def _properties(self, topic: str | bytes) -> bytes:
        random = self.random
        if self.chance(0.1):
            return random.choice((b"", *ODD_PROPERTIES))
        properties = {}
        if self.chance(0.8):
            properties["KEYS"] = random.choice((" ", " ", "  ")).join(
                random.choice(("", *KEYS)) for _ in range(random.randint(1, 4))
            )
        if self.chance(0.9):
            unique = random.choice(KEYS) if self.chance(0.1) else f"{random.getrandbits(128):032X}"
            properties["UNIQ_KEY"] = unique
        if self.chance(0.7):
            properties["TAGS"] = random.choice(("TagA", "pay", "标签", "😀", "a || b"))
        if topic == "SCHEDULE_TOPIC_XXXX" or self.chance(0.05):
            properties["DELAY"] = random.choice(("1", "3", "18", "19", "0", "-1", "+4", "٣"))
        if self.options.multi_dispatch and self.chance(0.5):
            properties |= self._multi_dispatch()
        encoded = encode_properties(properties)
        if self.chance(0.05):
            encoded += b"\x02KEYS\x01" + random.choice(BROKEN_KEYS)
        return encoded

    def _multi_dispatch(self) -> dict[str, str]:
        queues = self.random.sample(
            ("%LMQ%a", "%LMQ%b", "plain", "中文"), self.random.randint(1, 3)
        )
        offsets = []
        for queue in queues:
            # No message has this queue id: only further dispatches use the counter.
            offsets.append(str(self.next_offsets[queue, -1]))
            self.next_offsets[queue, -1] += 1
        if self.chance(0.1):
            offsets.append("7")  # if there are more offsets than queues, the broker uses none
        return {
            "INNER_MULTI_DISPATCH": ",".join(queues),
            "INNER_MULTI_QUEUE_OFFSET": ",".join(offsets),
        }
