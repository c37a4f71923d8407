"""Files with any contents: each query gives an answer or an error of one line, never a traceback."""

from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from sys import byteorder

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reput
from reput.core.query.message_store import MessageStore
from reput.errors import ReputError
from reput.format.java_string import joined_surrogates
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
_LONG_MAX = 2**63 - 1
_FOLDERS = ("commitlog", "index", "consumequeue", "checkpoint")


def mutate(data: bytearray, kind: str, at: int, length: int, random: Random) -> None:
    piece = slice(at, at + length)
    if kind == "flip":
        for _ in range(length):
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    elif kind == "zero":
        data[piece] = bytes(len(data[piece]))
    elif kind == "ones":
        data[piece] = b"\xff" * len(data[piece])
    elif kind == "integer":
        value = random.choice((0, 1, -1, 2**31 - 1, -(2**31), random.randrange(5000)))
        data[at : at + 4] = value.to_bytes(4, "big", signed=True)
    elif kind == "header":
        data[random.randrange(min(44, len(data)))] = random.randrange(256)
    elif kind == "truncate":
        del data[at:]
    elif kind == "insert":
        data[at:at] = random.randbytes(length)
    elif kind == "grow":
        data += bytes(length)


_MUTATIONS = ("flip", "zero", "ones", "integer", "header", "truncate", "insert", "grow")
_mutations = st.lists(
    st.tuples(
        st.sampled_from(_FOLDERS),
        st.sampled_from(_MUTATIONS),
        st.floats(0, 1, exclude_max=True),
        st.sampled_from((1, 4, 20, 400, 5000)),
    ),
    min_size=1,
    max_size=8,
)


def damage(path: Path, mutations: list[tuple[str, str, float, int]], random: Random) -> None:
    for folder, kind, where, length in mutations:
        below = path / folder
        files = sorted(p for p in [below, *below.rglob("*")] if p.is_file())
        files = [p for p in files if p.stat().st_size]
        if files:
            file = random.choice(files)
            data = bytearray(file.read_bytes())
            mutate(data, kind, int(where * len(data)), length, random)
            file.write_bytes(data)


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Accept errors of one line that derive from ReputError, and no other exception."""
    try:
        yield
    except ReputError as error:
        if "\n" in str(error):
            pytest.fail(f"{error!r} has more than one line")


def ask_everything(opened: MessageStore, store: GoldenStore, random: Random) -> None:
    """Run every kind of query. Only ReputErrors of one line may be raised."""
    questions: list[Callable[[], object]] = [opened.end_offset, opened.queues.list]
    for query in random.sample(store.queries, 6):
        asked = query.topic, query.key, query.max_num, query.begin, query.end
        questions += [
            lambda q=query: opened.query(q.topic, q.key, q.begin, q.end),  # type: ignore[misc]
            lambda q=query: opened.query(q.topic, q.key, limit=2),  # type: ignore[misc]
            lambda a=asked: opened.query_offset(*a),  # type: ignore[misc]
            lambda a=asked: opened.query_message(*a),  # type: ignore[misc]
        ]
    for row in random.sample(store.messages, 6):
        near = row.physical_offset + random.randrange(-3, 100)
        questions += [
            lambda r=row: opened.get(r.physical_offset),  # type: ignore[misc]
            lambda n=near: opened.get(n),  # type: ignore[misc]
            lambda r=row: opened.get_by_queue(r.topic, r.queue_id, r.queue_offset),  # type: ignore[misc]
            lambda r=row: opened.find_by_id(r.uniq_key or "x"),  # type: ignore[misc]
        ]
    for question in questions:
        with told_in_one_line():
            question()


@pytest.mark.parametrize("name", ["tricky", "extremes", "lmq"])
@given(mutations=_mutations, seed=st.integers(0, 2**32), says=st.booleans())
def test_mutated_golden_stores(
    golden: Golden,
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    mutations: list[tuple[str, str, float, int]],
    seed: int,
    says: bool,
) -> None:
    random = Random(seed)
    store = golden(name)
    path = copy_store(store.path, tmp_path_factory.mktemp("hostile") / "store")
    damage(path, mutations, random)
    slots, items = (store.hash_slots, store.index_items) if says else (None, None)
    with told_in_one_line(), reput.open_store(path, hash_slots=slots, index_items=items) as opened:
        ask_everything(opened, store, random)


@pytest.mark.parametrize("folder", ["commitlog", "index", "consumequeue"])
@pytest.mark.parametrize("content", [b"", b"\0" * 5000, b"\xff" * 5000, b"alien\n" * 999])
def test_a_folder_full_of_something_else(
    golden: Golden, tmp_path: Path, folder: str, content: bytes
) -> None:
    store = golden("lmq")
    path = copy_store(store.path, tmp_path / "store")
    for file in (path / folder).rglob("*"):
        if file.is_file():
            file.write_bytes(content)
    with told_in_one_line(), reput.open_store(path) as opened:
        ask_everything(opened, store, Random(1))


@pytest.mark.parametrize(
    "text", ["", " ", "\0", "\ud83d", "\ud83d\ude00", "é" * 50_000, "#", "a b"]
)
def test_any_text_may_be_asked_for(golden: Golden, text: str) -> None:
    with reput.open_store(golden("tricky").path) as opened:
        for topic, key in ((text, "k"), ("TrickyTopic", text), (text, text)):
            found = opened.query(topic, key)
            assert {message.topic for message in found.messages} <= {joined_surrogates(topic)}
            opened.query_message(topic, key, 64, -(2**63), _LONG_MAX)
            opened.find_by_id(text, topic)


def test_surrogates_apart_or_joined_are_one_key(golden: Golden) -> None:
    store = golden("tricky")
    row = next(
        r for r in store.messages if r.keys and not r.sys_flag & 12 and ord(max(r.keys)) > 0xFFFF
    )
    key = next(k for k in (row.keys or "").split(" ") if k and ord(max(k)) > 0xFFFF)
    codes = array("H", key.encode("utf-16" + ("-le" if byteorder == "little" else "-be")))
    units = "".join(map(chr, codes))
    assert units != key
    with reput.open_store(store.path) as opened:
        found = opened.query(row.topic, units)
        assert row.physical_offset in [message.physical_offset for message in found.messages]
        assert found.messages == opened.query(row.topic, key).messages
