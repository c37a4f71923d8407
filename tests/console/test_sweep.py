"""Sweeps of a log by time and content find what a plain walk of all messages finds."""

from __future__ import annotations

import json
import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput import Message, StoreConfig
from reput.core.query.inner_batch import unwrap
from reput.core.query.message_store import MessageStore
from reput.engine.messages.tail import LogTail, TailFilter
from reput.format.bodies import sent_body
from reput.format.commit_log import MessageExt
from reput.wings.console.content import MOST_JSON_BYTES, Content, parse_content
from reput.wings.console.sweep import Sweep, SweptTo
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
_SIZES = StoreConfig(
    commit_log_file_bytes=1 << 22, queue_entries=50, hash_slots=64, index_items=300
)


def swept(store: Path, wanted: TailFilter, content: Content | None = None) -> list[MessageExt]:
    """Return the result of a sweep, which must not report damage."""
    with MessageStore(store) as opened:
        sweep = Sweep(opened, wanted, content, most_body_bytes=1 << 20)
        found = [one for one in sweep.steps() if isinstance(one, MessageExt)]
        assert sweep.damage == ()
        assert sweep.unsearched == 0
        return found


def walked(store: Path, wanted: TailFilter) -> list[MessageExt]:
    """Return the wanted messages as a walk of the whole log finds them, newest first."""
    with MessageStore(store) as opened:
        tail = LogTail(opened, wanted)
        return [inner for one in list(tail.new(to_the_end=True)) for inner in unwrap(one)][::-1]


@pytest.mark.parametrize("name", ["orders", "tricky", "five_batch", "lmq", "timed"])
def test_a_window_has_the_messages_of_a_walk(golden: Golden, name: str) -> None:
    store = golden(name).path
    every = walked(store, TailFilter())
    times = sorted(one.store_timestamp for one in every)
    for first, last in ((0, -1), (len(times) // 3, len(times) // 2), (-1, -1)):
        wanted = TailFilter(begin=times[first], end=times[last])
        assert swept(store, wanted) == walked(store, wanted) != []
    topic = every[len(every) // 2].topic
    wanted = TailFilter(topic, end=times[len(times) // 2])
    assert swept(store, wanted) == walked(store, wanted)


def test_contents_are_those_that_python_finds(golden: Golden) -> None:
    store = golden("orders").path
    every = [(one, sent_body(one).data) for one in walked(store, TailFilter("orders"))]
    cases: list[tuple[str, str, Callable[[MessageExt, bytes], bool]]] = [
        ("text", "order-100377", lambda one, body: b"order-100377" in body or "order-100377" in one.keys),
        ("regex", "customer-6[0-4]\"", lambda one, body: re.search(rb'customer-6[0-4]"', body) is not None),
        ("json", "$.customer = customer-65", lambda one, body: json.loads(body).get("customer") == "customer-65"),
        ("property", "TAGS=created", lambda one, body: one.tags == "created"),
    ]  # fmt: skip
    for how, text, is_wanted in cases:
        expected = [one for one, body in every if is_wanted(one, body)]
        assert swept(store, TailFilter("orders"), parse_content(how, text)) == expected, text
        assert expected or how == "property", text


def test_damage_is_reported_and_the_rest_found(golden: Golden, tmp_path: Path) -> None:
    store = golden("orders")
    damaged = copy_store(store.path, tmp_path / "store")
    row = store.messages[len(store.messages) // 2]
    number, position = divmod(row.physical_offset, store.commit_log_file_bytes)
    with sorted((damaged / "commitlog").iterdir())[number].open("r+b") as file:
        file.seek(position + 4)
        file.write(bytes(4))
    with MessageStore(damaged) as opened:
        sweep = Sweep(opened, TailFilter())
        found = [one for one in sweep.steps() if isinstance(one, MessageExt)]
    assert len(sweep.damage) == 1
    assert row.physical_offset not in {one.physical_offset for one in found}
    assert len(found) > 0.95 * len(walked(store.path, TailFilter()))


def test_compressed_bodies_are_searched_and_long_ones_counted(tmp_path: Path) -> None:
    long = b'{"a": 1, "pad": "' + b"x" * MOST_JSON_BYTES + b'"}'
    with reput.open_store(tmp_path / "store", "rw", config=_SIZES) as store:
        for body in (b'{"a": 1}', b'{"a": 2}', long):
            store.put(Message("t", body))
        store.put(Message("t", zlib.compress(b'{"a": 1, "b": 2}'), sys_flag=1))
        store.put(Message("t", zlib.compress(b"a" * (2 << 20)), sys_flag=1))
    with MessageStore(tmp_path / "store") as opened:
        sweep = Sweep(
            opened, TailFilter(), parse_content("json", "$.a = 1"), most_body_bytes=1 << 20
        )
        found = [one for one in sweep.steps() if isinstance(one, MessageExt)]
        assert [sent_body(one).data for one in found] == [b'{"a": 1, "b": 2}', b'{"a": 1}']
        assert sweep.unsearched == 2


def test_progress_falls_to_the_beginning_and_a_sweep_continues_there(golden: Golden) -> None:
    store = golden("orders").path
    with MessageStore(store) as opened:
        steps = list(Sweep(opened, TailFilter("orders")).steps())
        reached = [one.left_bytes for one in steps if isinstance(one, SweptTo)]
        assert reached == sorted(reached, reverse=True)
        assert reached[-1] == 0
        every = [one for one in steps if isinstance(one, MessageExt)]
        middle = every[len(every) // 2].physical_offset
        rest = Sweep(opened, TailFilter("orders"), after=middle).steps()
        assert [one for one in rest if isinstance(one, MessageExt)] == [
            one for one in every if one.physical_offset < middle
        ]


def test_a_log_without_indexes_is_swept(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("orders").path, tmp_path / "store")
    for name in ("consumequeue", "index"):
        shutil.rmtree(store / name)
    assert len(swept(store, TailFilter("orders"))) == len(walked(store, TailFilter("orders")))
