"""Messages that a store is built from, and the answer that each question about them must get."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from zlib import crc32, decompress

from reput.format.commit_log import MessageExt
from tests.oracle.forge import RecordFields, encode_properties, encode_record
from tests.oracle.records import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_ROLLBACK

LMQ_PREFIX = "%LMQ%"
COMPRESSED, NEED_UNWRAP, INNER_BATCH = 1, 64, 128
_INNER_HEAD = struct.Struct(">iIIii")
_INNER_MAGIC = 0xDAA320A7


@dataclass(frozen=True)
class InnerMessage:
    """A message of an inner batch: its properties and body."""

    properties: str
    body: bytes

    def encoded(self) -> bytes:
        text = self.properties.encode()
        size = _INNER_HEAD.size + len(self.body) + 2 + len(text)
        crc = crc32(self.body) & 0x7FFFFFFF
        head = _INNER_HEAD.pack(size, _INNER_MAGIC, crc, 0, len(self.body))
        return head + self.body + struct.pack(">h", len(text)) + text

    @property
    def keys(self) -> list[str]:
        return _keys(_parsed(self.properties))


def _parsed(text: str) -> dict[str, str]:
    """Return properties by name. The last value of a name counts."""
    return dict(part.split("\x01") for part in text.split("\x02") if part)


def _keys(properties: dict[str, str]) -> list[str]:
    own = [key for key in properties.get("KEYS", "").split(" ") if key]
    return [properties["UNIQ_KEY"], *own] if "UNIQ_KEY" in properties else own


@dataclass(frozen=True)
class TrueMessage:
    """One record of a log: its fields, and the values that a broker derives from them."""

    fields: RecordFields
    inner: tuple[InnerMessage, ...] = ()

    @cached_property
    def data(self) -> bytes:
        return encode_record(self.fields)

    @property
    def at(self) -> int:
        return self.fields.physical_offset

    @property
    def stop(self) -> int:
        return self.at + len(self.data)

    @property
    def time(self) -> int:
        return self.fields.store_timestamp

    @cached_property
    def topic(self) -> str:
        assert isinstance(self.fields.topic, str)
        return self.fields.topic

    @cached_property
    def properties(self) -> dict[str, str]:
        return _parsed(self._text)

    @cached_property
    def _text(self) -> str:
        return encode_properties(self.fields.properties).decode()

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Return the keys by which an index finds the message. It finds no rolled-back message."""
        if self._transaction == TRANSACTION_ROLLBACK:
            return ()
        return (*self.own_keys, *(key for one in self.inner for key in one.keys))

    @cached_property
    def tags(self) -> list[str]:
        """Return the tags of the record and of its inner messages; none for a rolled-back message."""
        if self._transaction == TRANSACTION_ROLLBACK:
            return []
        all_properties = [self.properties, *(_parsed(one.properties) for one in self.inner)]
        return [each["TAGS"] for each in all_properties if "TAGS" in each]

    @cached_property
    def own_keys(self) -> tuple[str, ...]:
        """Return the keys of the record, without the keys of inner messages."""
        return tuple(_keys(self.properties))

    @cached_property
    def ids(self) -> list[str]:
        """Return all unique keys: also the ids that a later one replaces, and the ids of inner messages."""
        texts = [self._text, *(one.properties for one in self.inner)]
        parts = [part.partition("\x01") for text in texts for part in text.split("\x02")]
        return [value for name, _, value in parts if name == "UNIQ_KEY" and self.keys]

    def times(self, key: str) -> int:
        """Return how many of the messages in an inner batch have a key."""
        return sum(key in one.keys for one in self.inner)

    @property
    def _transaction(self) -> int:
        return self.fields.sys_flag & TRANSACTION_MASK

    @cached_property
    def queues(self) -> tuple[tuple[str, int, int], ...]:
        """Return (topic, queue id, queue offset) of each queue with an entry for the message."""
        if self._transaction not in (0, TRANSACTION_COMMIT):
            return ()
        first = self.fields.queue_offset
        numbers = range(first, first + max(len(self.inner), 1))
        own = [(self.topic, self.fields.queue_id, number) for number in numbers]
        lights = self.properties.get("INNER_MULTI_DISPATCH", "")
        offsets = self.properties.get("INNER_MULTI_QUEUE_OFFSET", "")
        further = zip(lights.split(","), offsets.split(","), strict=True) if lights else ()
        return (*own, *((name, 0, int(offset)) for name, offset in further))

    @cached_property
    def offset_id(self) -> str:
        address, port = self.fields.store_host
        return (address + struct.pack(">iq", port, self.at)).hex().upper()

    def is_same(self, other: MessageExt) -> bool:
        """Return whether a message that a reader returned is this one, with its own or its decompressed body."""
        own = self.fields
        bodies = [own.body]
        if own.sys_flag & COMPRESSED:
            bodies.append(decompress(own.body))
        forms = [(own.queue_offset, body, encode_properties(own.properties)) for body in bodies]
        for number, one in enumerate(self.inner, own.queue_offset):
            forms.append((number, one.body, one.properties.encode()))
        return (other.queue_offset, other.body, other.properties_bytes) in forms and (
            other.topic, other.queue_id, other.physical_offset, other.store_timestamp, other.born_timestamp,
        ) == (
            self.topic, own.queue_id, self.at, own.store_timestamp, own.born_timestamp,
        )  # fmt: skip


@dataclass(frozen=True)
class Question:
    """One question to a store. Its kind decides which fields it has.

    key     messages of a topic (or of all topics) with a key, in a window of time
    id      messages of a topic (or of all topics) with an offset id or unique key
    window  messages of a topic (or of all topics) stored in a window of time
    queue   all messages of a queue
    place   the message at a queue offset
    offset  the message at a physical offset
    newest  the newest messages of a topic (`number` of them)
    count   the number of records of a queue
    behind  the number of messages of a queue, which a group that has consumed nothing is behind
    tags    messages of a topic with tags (`key`), in a window of time
    """

    kind: str
    topic: str | None = None
    key: str = ""
    begin: int | None = None
    end: int | None = None
    queue_id: int = 0
    number: int = 0

    def __str__(self) -> str:
        shown = {
            "topic": self.topic, "key": self.key or None, "begin": self.begin, "end": self.end,
            "queue_id": self.queue_id if self.kind in _OF_QUEUE else None,
            "number": self.number if self.kind in ("place", "offset", "newest") else None,
        }  # fmt: skip
        return f"{self.kind}({', '.join(f'{name}={value!r}' for name, value in shown.items() if value is not None)})"


KINDS = ("key", "id", "window", "queue", "place", "offset", "newest", "count", "behind", "tags")
_OF_QUEUE = ("queue", "place", "count", "behind")
NEWEST = (10, 20)


@dataclass(frozen=True)
class Truth:
    """All messages of a store, in the order of its log."""

    messages: tuple[TrueMessage, ...]

    @cached_property
    def by_offset(self) -> dict[int, TrueMessage]:
        return {message.at: message for message in self.messages}

    @cached_property
    def by_queue(self) -> dict[tuple[str, int], dict[int, TrueMessage]]:
        found: dict[tuple[str, int], dict[int, TrueMessage]] = {}
        for message in self.messages:
            for topic, queue_id, offset in message.queues:
                found.setdefault((topic, queue_id), {})[offset] = message
        return found

    @cached_property
    def topics(self) -> list[str]:
        """Return all topics of the log, without light queues."""
        return sorted({message.topic for message in self.messages})

    def answer(self, asked: Question, *, is_of_log: bool = False) -> list[TrueMessage]:
        """Return the messages that a question asks for, in the order of the log.

        With `is_of_log`, this includes records that no queue and no index has, such as rolled-back ones.
        """
        return [message for message in self.messages if self._matches(message, asked, is_of_log)]

    def newest(self, asked: Question) -> list[TrueMessage]:
        """Return the newest messages of a topic, in the order of the log. Messages of inner batches count."""
        found = self.answer(asked)
        left = asked.number
        for number, message in enumerate(reversed(found)):
            left -= max(len(message.inner), 1)
            if left < 0:
                return found[len(found) - number :]
        return found

    def _matches(self, message: TrueMessage, asked: Question, is_of_log: bool) -> bool:
        if asked.kind == "offset":
            return message.at == asked.number
        if asked.kind == "count":
            return (message.topic, message.fields.queue_id) == (asked.topic, asked.queue_id)
        if asked.kind in ("queue", "place", "behind"):
            return any(
                (topic, queue_id) == (asked.topic, asked.queue_id)
                and (asked.kind != "place" or offset == asked.number)
                for topic, queue_id, offset in message.queues
            )
        if asked.kind == "id" and message.offset_id == asked.key:
            return True
        if asked.topic is not None and message.topic != asked.topic:
            return False
        if asked.kind == "id":
            return asked.key in message.ids
        is_inside = (asked.begin is None or asked.begin <= message.time) and (
            asked.end is None or message.time <= asked.end
        )
        if asked.kind in ("window", "newest"):
            return is_inside and (is_of_log or bool(message.queues))
        if asked.kind == "tags":
            return is_inside and asked.key in message.tags
        return is_inside and asked.key in message.keys

    def questions(
        self, kind: str, random: Random, count: int, likely: Sequence[TrueMessage]
    ) -> Iterator[Question]:
        """Yield questions of a kind. Every second one is about one of the `likely` messages, if there are any."""
        for number in range(count):
            message = random.choice(likely if likely and number % 2 else self.messages)
            yield getattr(self, f"_ask_{kind}")(message, random)

    def _window(self, message: TrueMessage, random: Random) -> tuple[int, int]:
        width = random.choice((0, 5, 40, 400))
        begin = message.time - random.randrange(width + 1)
        return begin, begin + width

    def _ask_key(self, message: TrueMessage, random: Random) -> Question:
        key = random.choice(message.keys) if message.keys else "no-such-key"
        begin, end = self._window(message, random) if random.random() < 0.3 else (None, None)
        return Question("key", random.choice((message.topic, None)), key, begin, end)

    def _ask_tags(self, message: TrueMessage, random: Random) -> Question:
        begin, end = self._window(message, random) if random.random() < 0.3 else (None, None)
        tags = message.tags[0] if message.tags and not message.inner else "no-such-tags"
        return Question("tags", message.topic, tags, begin, end)

    def _ask_id(self, message: TrueMessage, random: Random) -> Question:
        ids = [message.offset_id, *message.ids]
        return Question("id", random.choice((message.topic, None)), random.choice(ids))

    def _ask_window(self, message: TrueMessage, random: Random) -> Question:
        begin, end = self._window(message, random)
        if random.random() < 0.2:
            begin = self.messages[0].time - 1000
        elif random.random() < 0.2:
            end = self.messages[-1].time + 1000
        topic = None if random.random() < 0.2 else message.topic
        return Question("window", topic, begin=begin, end=end)

    def _ask_queue(self, message: TrueMessage, random: Random) -> Question:
        topic, queue_id, _ = self._place(message, random)
        return Question("queue", topic, queue_id=queue_id)

    def _ask_behind(self, message: TrueMessage, random: Random) -> Question:
        return replace(self._ask_queue(message, random), kind="behind")

    def _ask_count(self, message: TrueMessage, random: Random) -> Question:
        return Question("count", message.topic, queue_id=message.fields.queue_id)

    def _ask_newest(self, message: TrueMessage, random: Random) -> Question:
        return Question("newest", message.topic, number=random.choice(NEWEST))

    def _ask_place(self, message: TrueMessage, random: Random) -> Question:
        topic, queue_id, offset = self._place(message, random)
        return Question("place", topic, queue_id=queue_id, number=offset)

    def _place(self, message: TrueMessage, random: Random) -> tuple[str, int, int]:
        while not message.queues:
            message = random.choice(self.messages)
        return random.choice(message.queues)

    def _ask_offset(self, message: TrueMessage, random: Random) -> Question:
        return Question("offset", number=message.at)
