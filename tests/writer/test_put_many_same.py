"""Messages that are put at once equal messages that are put one by one: the same bytes, or the same refusal."""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reput.base.config import StoreConfig
from reput.engine.writer.put.arrow import _array, _encoded, from_columns
from reput.engine.writer.put.gather import from_messages
from reput.engine.writer.put.message import Message, PutResult
from reput.engine.writer.put.results import PutResults
from reput.errors import MessageRefusedError
from reput.format.host import Host
from reput.format.message_id import UniqueKeys
from tests.slow import examples
from tests.writer.golden_puts import STORE_HOST, new_writer

CONFIG = StoreConfig(commit_log_file_bytes=1 << 14)
FIVE = replace(CONFIG, store_version="5.3")
CONFIGS = (CONFIG, FIVE, replace(FIVE, append_record_crc=True))
DELAY_LEVELS = 18
LONG = ["t" * 127, "t" * 128, *("\u00f6" * count for count in (70, 127, 128))]
words = st.sampled_from(
    ["", "a", "key", "two words", "\u00fc", "\U0001f600", "\ud83d", "\x01", "\x02", "x" * 300]
)
names = st.sampled_from(
    ["UNIQ_KEY", "KEYS", "TAGS", "DELAY", "CLUSTER", "", "n\x01", "\u4e2d", *(f"p{n}" for n in range(14))]
)  # fmt: skip
numbers = st.sampled_from([0, 0, 0, 1, 4, 8, 12, -1, (1 << 31) - 1, 1 << 31])
messages = st.builds(
    Message,
    topic=st.sampled_from(["Topic", "Topic", "T\u00f6pic", "SCHEDULE_TOPIC_XXXX", "a/b", *LONG]),
    body=st.sampled_from([b"", b"body", bytes(700), memoryview(b"view")]),
    keys=st.lists(words, max_size=3) | words | st.none(),
    tags=words,
    queue_id=st.sampled_from([0, 1, 7, (1 << 31) - 1, -1]),
    properties=st.dictionaries(names, words | st.sampled_from(["1", "20"]), max_size=14).map(
        lambda given: {"UNIQ_KEY": "u"} | given
    )
    | words,
    flag=numbers,
    sys_flag=numbers,
    born_timestamp=st.sampled_from([None, None, 0, -5, 1 << 62]),
    born_host=st.sampled_from([None, None, Host("10.1.2.3", 4), Host("::1", 5), Host("no", 1)]),
    reconsume_times=numbers,
    prepared_transaction_offset=st.sampled_from([0, 5, 1 << 62]),
)
plain = st.builds(
    Message,
    topic=st.just("Topic"),
    keys=st.lists(st.sampled_from(["a", "b", "\u00fc"]), max_size=2),
    tags=st.sampled_from(["", "t"]),
    properties=st.just({"UNIQ_KEY": "u"})
    | st.just({"UNIQ_KEY": "u", "CLUSTER": "c", "DELAY": "3"}),
)


@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(plain, max_size=12)
    | st.lists(messages, max_size=3)
    | st.lists(plain | messages, max_size=4),
    st.sampled_from(CONFIGS),
)
def test_at_once_or_one_by_one(some: list[Message], config: StoreConfig) -> None:
    with tempfile.TemporaryDirectory() as folder:
        one_by_one = new_writer(Path(folder, "one"), config, lambda: 7_000)
        at_once = new_writer(Path(folder, "many"), config, lambda: 7_000)
        expected: list[PutResult] = []
        is_refused = False
        try:
            expected += map(one_by_one.put, some)
        except MessageRefusedError:
            is_refused = True
        try:
            columns = from_messages(
                some, UniqueKeys("0A" * 10), 7_000, STORE_HOST, DELAY_LEVELS, at_once.form
            )
            part = at_once.put_columns(columns)
        except MessageRefusedError:
            assert is_refused
            assert at_once.position == 0
            return
        assert not is_refused
        assert PutResults.joined([part], at_once.id_prefix) == expected
        assert log_bytes(Path(folder, "one")) == log_bytes(Path(folder, "many"))


@pytest.mark.parametrize(
    "change",
    [
        {"flag": 5},
        {"sys_flag": 1},
        {"reconsume_times": 2},
        {"prepared_transaction_offset": 9},
        {"born_timestamp": 0},
        {"born_host": Host("10.1.2.3", 4)},
        {"queue_id": (1 << 31) - 1},
        {"keys": None},
        {"tags": "t"},
    ],
)
@pytest.mark.every_case
def test_one_that_differs_among_many(tmp_path: Path, change: dict[str, object]) -> None:
    some = [
        Message("T", b"x", ["k"], queue_id=n % 3, properties={"UNIQ_KEY": "u"}) for n in range(100)
    ]
    some[90] = replace(some[90], **change)  # type: ignore[arg-type]
    one_by_one = new_writer(tmp_path / "one", CONFIG, lambda: 7_000)
    at_once = new_writer(tmp_path / "many", CONFIG, lambda: 7_000)
    expected = [one_by_one.put(message) for message in some]
    columns = from_messages(some, UniqueKeys("0A" * 10), 7_000, STORE_HOST, DELAY_LEVELS)
    part = at_once.put_columns(columns)
    assert PutResults.joined([part], at_once.id_prefix) == expected
    assert log_bytes(tmp_path / "one") == log_bytes(tmp_path / "many")


def test_unique_keys_are_made_where_there_is_none(tmp_path: Path) -> None:
    given_keys = ["a" * 32, None, None, "d" * 32]
    some = [
        Message("T", keys=["k"], properties={} if key is None else {"UNIQ_KEY": key})
        for key in given_keys
    ]
    by_messages = new_writer(tmp_path / "messages", CONFIG, lambda: 7_000)
    by_messages.put_columns(from_messages(some, UniqueKeys("0A" * 10), 0, STORE_HOST, DELAY_LEVELS))
    by_columns = new_writer(tmp_path / "columns", CONFIG, lambda: 7_000)
    batch = {"topic": "T", "body": b"", "keys": "k", "unique_key": pa.array(given_keys)}
    by_columns.put_columns(from_columns(batch, STORE_HOST))
    assert log_bytes(tmp_path / "messages") == log_bytes(tmp_path / "columns")
    made = log_bytes(tmp_path / "columns")[f"{0:020d}"]
    assert made.count(b"UNIQ_KEY\x01" + b"0A" * 10) == 2


def test_delayed_in_columns_as_in_messages(tmp_path: Path) -> None:
    rows = [
        ("T", 0, 0, 0),
        ("T", 2, 3, 0),
        ("U", 1, 99, 8),
        ("T", 1, 5, 4),
        ("SCHEDULE_TOPIC_XXXX", 7, 8, 0),
    ]
    some = [
        Message(
            topic, b"x", ["k"], queue_id=queue_id, sys_flag=flag,
            properties={"UNIQ_KEY": "u"} | ({"DELAY": str(level)} if level else {}),
        )
        for topic, queue_id, level, flag in rows
    ]  # fmt: skip
    names = ("topic", "queue_id", "delay_level", "sys_flag")
    batch: dict[str, object] = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    batch |= {"body": b"x", "keys": "k", "unique_key": "u"}
    one_by_one = new_writer(tmp_path / "one", CONFIG, lambda: 7_000)
    in_columns = new_writer(tmp_path / "columns", CONFIG, lambda: 7_000)
    expected = [one_by_one.put(message) for message in some]
    part = in_columns.put_columns(from_columns(batch, STORE_HOST))
    assert PutResults.joined([part], in_columns.id_prefix) == expected
    assert log_bytes(tmp_path / "one") == log_bytes(tmp_path / "columns")
    assert one_by_one.queue_offsets["SCHEDULE_TOPIC_XXXX", 17] == 1
    for bad in ({"topic": "a/b"}, {"queue_id": -1}):
        with pytest.raises(MessageRefusedError):
            from_columns({"topic": "T", "body": b"", "delay_level": 1} | bad, STORE_HOST)


@pytest.mark.parametrize("config", CONFIGS)
def test_columns_are_written_as_messages_are(tmp_path: Path, config: StoreConfig) -> None:
    topics = ["T", "t" * 128 if config.is_five else "t" * 127]
    some = [
        Message(topic, b"x" * 90, ["k"], tags="t", properties={"UNIQ_KEY": "u"}) for topic in topics
    ]
    batch = {"topic": topics, "body": b"x" * 90, "keys": "k", "tags": "t", "unique_key": "u"}
    one_by_one = new_writer(tmp_path / "one", config, lambda: 7_000)
    in_columns = new_writer(tmp_path / "columns", config, lambda: 7_000)
    for message in some:
        one_by_one.put(message)
    in_columns.put_columns(from_columns(batch, STORE_HOST, form=in_columns.form))
    assert log_bytes(tmp_path / "one") == log_bytes(tmp_path / "columns")
    if config.is_five:
        with pytest.raises(MessageRefusedError, match="an inner batch must be put by itself"):
            in_columns.put_columns(
                from_columns(batch | {"sys_flag": 128}, STORE_HOST, form=in_columns.form)
            )


def test_columns_in_chunks_become_large_arrays() -> None:
    # One plain array holds at most 2 GiB of texts, and the chunks of a column may have more.
    parts = [["T", "U"], ["T"]]
    column = pa.chunked_array([pa.array(part, pa.binary()) for part in parts])
    assert _array(column, 3).type == pa.large_binary()
    topic = _array(pa.chunked_array(parts), 3)
    assert topic.type == pa.large_string()
    names, index = _encoded(topic)
    assert (names, index.tolist()) == (["T", "U"], [0, 1, 0])


def test_results_are_a_sequence() -> None:
    offsets, numbers = np.arange(5) * 100, np.arange(5)
    results = PutResults(offsets, numbers, np.full(5, 9), "AB")
    listed = [PutResult(100 * n, n, f"AB{100 * n:016X}", 9) for n in range(5)]
    assert results == listed
    assert list(results) == listed
    assert results[1:4] == listed[1:4]
    assert results[-1] == listed[-1]
    assert results != listed[1:]
    assert results != [*listed[:4], listed[0]]
    assert listed[2] in results
    assert [*[], *results] == listed
    assert repr(results).startswith("<PutResults of 5")
    assert PutResults.joined([], "AB") == []


def log_bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}
