"""The broker's answers: every line of every golden store, and conditions under which a broker cannot answer."""

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import reput
from reput.core.log import ends
from reput.core.log.ends import recovered_end
from reput.core.log.reader import CommitLogReader
from reput.core.log.sources import StoreLog
from reput.core.query import message_store
from reput.core.query.message_store import MessageStore
from reput.engine.writer.put.message import Message
from reput.errors import CorruptMessageError, UsageError
from reput.format.index_file import key_hash
from reput.format.properties import UNIQ_KEY
from tests.golden.sparse import copy_store
from tests.golden.stores import EVERY_STORE, SHIPPED, GoldenStore, TornCase
from tests.golden.tables import AnswerRow, QueryRow
from tests.oracle.forge import RecordFields, flip_bit, forge_log, write_store
from tests.oracle.walk import read_log
from tests.slow import slow_from
from tests.small import SMALL_16K

Golden = Callable[[str], GoldenStore]
Torn = Callable[[str], TornCase]
LONG_MAX = 2**63 - 1
MOST_BYTES = 4 << 20
TORN_AND_ANSWERED = (
    *("abort_clean", "checkpoint_missing_abort", "cq_deleted_noabort", "cq_last_entry_zeroed"),
    *("crc_late_abort", "crc_late_noabort", "crc_old_abort", "crc_old_noabort"),
    *("index_count_zero_noabort", "index_deleted_abort", "index_deleted_noabort"),
    *("index_header_zero_noabort", "index_junk_file", "index_last_entry_half", "index_short_file"),
    *("kill9", "magic_first_lastfile_abort", "size_bigger_noabort", "tail_noabort"),
)


def columns(store: MessageStore, query: QueryRow) -> tuple[object, ...]:
    """Return the store's answers to a query, in the order of the columns of answers.tsv."""
    asked = (query.topic, query.key, query.max_num, query.begin, query.end)
    by_index = store.query_offset(*asked)
    by_store = store.query_message(*asked)
    try:
        records = store.query_records(*asked, MOST_BYTES)
    except CorruptMessageError:
        with pytest.raises(CorruptMessageError):
            store.quick_query(*asked, MOST_BYTES)
    else:
        assert records[0] == by_store
        assert store.quick_query(*asked, MOST_BYTES) in (records, None)
    return (
        by_index.index_last_update_timestamp,
        by_index.index_last_update_physical_offset,
        by_index.physical_offsets,
        by_store.index_last_update_timestamp,
        by_store.index_last_update_physical_offset,
        by_store.physical_offsets,
    )


def wrong_answers(
    store: MessageStore, queries: list[QueryRow], answers: list[AnswerRow]
) -> list[tuple[object, object]]:
    wrong: list[tuple[object, object]] = []
    for query, answer in zip(queries, answers, strict=True):
        if answer.error is not None:
            with pytest.raises(UsageError, match="max_num must be at least 0"):
                columns(store, query)
            continue
        theirs = (
            answer.index_last_update_timestamp,
            answer.index_last_update_physical_offset,
            answer.query_offset,
            answer.message_last_update_timestamp,
            answer.message_last_update_physical_offset,
            answer.query_message,
        )
        ours = columns(store, query)
        if ours != theirs:
            wrong.append((query, (ours, theirs)))
    return wrong


@pytest.mark.parametrize("name", slow_from(len(SHIPPED), EVERY_STORE))
def test_every_query_is_answered_as_the_broker_answered_it(golden: Golden, name: str) -> None:
    store = golden(name)
    with reput.open_store(store.path) as opened:
        assert wrong_answers(opened, store.queries, store.answers) == []


@pytest.mark.parametrize("name", TORN_AND_ANSWERED)
def test_a_damaged_store_is_answered_for_as_by_its_broker(torn: Torn, name: str) -> None:
    case = torn(name)
    with reput.open_store(case.after) as opened:
        assert wrong_answers(opened, case.queries, case.answers) == []


def test_a_chain_that_leads_round_in_circles_is_cut(golden: Golden, tmp_path: Path) -> None:
    path = copy_store(golden("orders").path, tmp_path / "store")
    with reput.open_store(path) as opened:
        file = opened.index.current()[-1]
        last, slots = file.next_item - 1, file.hash_slots
        slot = file.item(last).key_hash % slots
    with Path(file.path).open("r+b") as changed:  # the last two items point to each other
        for item, previous in ((last, last - 1), (last - 1, last)):
            changed.seek(40 + 4 * slots + 20 * item + 16)
            changed.write(struct.pack(">i", previous))
    in_the_slot = next(k for k in map(str, range(10**6)) if key_hash(f"T#{k}") % slots == slot)
    with reput.open_store(path) as opened:
        assert opened.query_offset("T", in_the_slot, 64, 0, LONG_MAX).physical_offsets == ()
        assert opened.query_message("T", in_the_slot, 64, 0, LONG_MAX).physical_offsets == ()


@pytest.mark.parametrize("walked_bytes", [8 << 20, 0])
def test_a_broker_ends_its_log_at_the_first_wrong_crc_of_the_last_three_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, walked_bytes: int
) -> None:
    monkeypatch.setattr(ends, "WALKED_BYTES", walked_bytes)
    log = forge_log([RecordFields(body=b"body" * 10) for _ in range(100)], file_bytes=2048)
    by_file = {
        start: [o for o in log.offsets if start <= o < start + 2048] for start, _ in log.files()
    }
    starts = sorted(by_file)
    in_an_old_file, in_a_recovered_one = by_file[starts[-4]][1], by_file[starts[-2]][2]
    damaged = flip_bit(flip_bit(log.files(), in_an_old_file + 100, 1), in_a_recovered_one + 100, 1)
    opened = CommitLogReader(StoreLog(write_store(tmp_path / "store", damaged)))
    assert recovered_end(opened, starts[-3]) == in_a_recovered_one


@pytest.mark.parametrize("name", ["tricky", "lmq", "git"])
@pytest.mark.parametrize("walked_bytes", [8 << 20, 0])
def test_a_broker_finds_the_end_of_a_whole_log(
    golden: Golden, monkeypatch: pytest.MonkeyPatch, name: str, walked_bytes: int
) -> None:
    monkeypatch.setattr(ends, "WALKED_BYTES", walked_bytes)
    store = golden(name)
    last = store.messages[-1]
    assert (
        recovered_end(CommitLogReader(StoreLog(store.path)), 0) == last.physical_offset + last.size
    )


@pytest.mark.parametrize("walked_bytes", [8 << 20, 0])
def test_a_broker_that_lost_its_tail_ends_where_the_torn_record_begins(
    torn: Torn, monkeypatch: pytest.MonkeyPatch, walked_bytes: int
) -> None:
    monkeypatch.setattr(ends, "WALKED_BYTES", walked_bytes)
    assert (
        recovered_end(CommitLogReader(StoreLog(torn("crc_late_noabort").after)), 1245184) == 1277647
    )
    log = CommitLogReader(StoreLog(torn("kill9").before))
    assert recovered_end(log, read_log(torn("kill9").before)[-3][0]) == 822223


def test_an_answer_that_takes_long_is_left_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"

    def put(*messages: Message) -> None:
        # An open writer may prepare a file between two questions, after which the end of the log is unknown again. And
        # unique keys of chance may share the slot of a key, whose chain then takes more steps.
        named = [replace(one, properties={UNIQ_KEY: f"{n:032X}"}) for n, one in enumerate(messages)]
        with reput.open_store(path, mode="rw", config=SMALL_16K) as writer:
            writer.put_many(named)

    put(Message("T", b"x", keys="seldom"), *[Message("T", b"x", keys="frequent")] * 40)
    with MessageStore(path, config=SMALL_16K) as reader:

        def asked(key: str) -> tuple[object, object]:
            given = ("T", key, 32, 0, LONG_MAX, MOST_BYTES)
            return reader.quick_query(*given), reader.query_records(*given)

        quick, found = asked("seldom")
        assert quick is None  # the end of the log is still unknown
        quick, again = asked("seldom")
        assert quick == found == again
        quick, found = asked("frequent")
        assert quick == found
        monkeypatch.setattr(message_store, "_QUICK_STEPS", 20)
        assert asked("frequent")[0] is None
        assert asked("seldom")[0] is not None
        put(Message("T", bytes(60_000 // 8), keys="large"))
        quick, found = asked("large")
        assert quick is None  # the log has grown, so its end is unknown again
        monkeypatch.setattr(message_store, "_QUICK_STEPS", 5)
        assert asked("large") == (found, found)
        monkeypatch.setattr(message_store, "_QUICK_STEPS", 3)
        assert asked("large")[0] is None
