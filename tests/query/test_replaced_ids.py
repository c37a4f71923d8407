"""Ids that producers got for messages of a list (5.x): in the records, but not in the index."""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

import reput
from reput.base.tasks import SerialRunner
from reput.core.log import range_scan
from reput.core.log.files import CommitLogFile
from reput.core.query.message_store import MessageStore
from reput.engine.rebuild.driver import rebuild_store
from reput.engine.tables.arrow import to_arrow
from reput.format.properties import may_be_replaced_id, unique_keys
from reput.wings.inspect.trace import trace_life
from tests.golden.stores import GoldenStore
from tests.golden.tables import read_named
from tests.oracle.forge import LogForge, RecordFields, forge_log, write_store
from tests.slow import IS_THOROUGH
from tests.small import SMALL

Golden = Callable[[str], GoldenStore]
FILE_BYTES = 1 << 13
_ROLLBACK = 12


def an_id(number: int) -> str:
    return f"7F0000010001{number:020X}"


def _records(seed: int) -> Iterator[RecordFields]:
    """Yield ordinary messages, and lists of messages as 5.x brokers store them: with the list's id as second UNIQ_KEY.

    Some messages have a third UNIQ_KEY, which may equal one of the others.
    """
    random, number = Random(seed), 0
    while number < 300:
        topic, count = random.choice("TU"), random.choice((0, 0, 1, 3))
        list_id = an_id(10_000 + number)
        for _ in range(max(count, 1)):
            ids = [an_id(number)] + ([list_id] if count else [])
            if random.random() < 0.05:
                ids.insert(1, random.choice((an_id(20_000 + number), list_id, ids[0])))
            key = random.choice(["", f"KEYS\x01{an_id(random.randrange(300))} k\x02"])
            text = "\x02".join([f"UNIQ_KEY\x01{ids[0]}", "WAIT\x01true", key.rstrip("\x02")])
            text += "".join(f"\x02UNIQ_KEY\x01{one}" for one in ids[1:]) + "\x02"
            yield RecordFields(
                topic=topic, body=bytes(random.randrange(60)), properties=text,
                sys_flag=_ROLLBACK if random.random() < 0.03 else 0,
                store_timestamp=1_700_000_000_000 + 1000 * number,
            )  # fmt: skip
            number += 1


def _expected(log: LogForge, records: list[RecordFields], topic: str, key: str) -> list[int]:
    found = []
    for offset, record in zip(log.offsets, records, strict=True):
        assert isinstance(record.properties, str)
        chunks = [chunk.split("\x01") for chunk in record.properties.split("\x02")]
        ids = [chunk[1] for chunk in chunks if chunk[0] == "UNIQ_KEY"]
        keys = [key for chunk in chunks if chunk[0] == "KEYS" for key in chunk[1].split()]
        if record.topic == topic and record.sys_flag != _ROLLBACK and key in [*ids, *keys]:
            found.append(offset)
    return found[::-1]


def _store(path: Path, seed: int, indexed: int) -> tuple[LogForge, list[RecordFields]]:
    """Return a store whose first `indexed` log files are indexed."""
    records = list(_records(seed))
    log = forge_log(records, file_bytes=FILE_BYTES)
    write_store(path, log.files()[: indexed or None])
    if indexed:
        rebuild_store(SerialRunner(), path, config=SMALL)
    for start, data in log.files():
        (path / "commitlog" / f"{start:020d}").write_bytes(data)
    return log, records


@pytest.fixture(params=[4096, 1 << 20])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let queries remember the ids in small files as well, and let each remembered range have only a few records."""
    monkeypatch.setattr(CommitLogFile, "LEAST_KEPT_BYTES", request.param)
    monkeypatch.setattr(range_scan, "_LEAST_PIECE_BYTES", 1000)
    monkeypatch.setattr(range_scan, "_ROOM", 2)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("indexed", [0, 3, 99])
def test_every_id_is_found_as_the_slow_way_finds_it(tmp_path: Path, indexed: int) -> None:
    log, records = _store(tmp_path / "s", indexed, indexed)
    asked: list[tuple[str, str]] = [
        (topic, an_id(n)) for topic in "TU" for n in [*range(0, 300, 7), 10_000, 20_003, 999]
    ]
    every = [
        (topic, key)
        for topic, key in ((record.topic, key) for record in records for key in _ids(record))
        if isinstance(topic, str)
    ]
    asked += Random(1).sample(sorted(set(every) - set(asked)), 60)
    expected = [_expected(log, records, *question) for question in asked]
    assert sum(map(bool, expected)) > 60
    for _ in range(2):  # the second time with the ids that the first saved
        with reput.open_store(tmp_path / "s") as store:
            for question, offsets in zip(asked, expected, strict=True):
                found = store.query(*question)
                assert [one.physical_offset for one in found.messages] == offsets
                assert found.is_complete
                paged = store.query(*question, limit=1)
                assert [one.physical_offset for one in paged.messages] == offsets[:1]
    answer = reput.look_up(tmp_path / "s", asked, columns=["physical_offset"])
    by_key: dict[tuple[str, str], list[int | None]] = {}
    for row in answer.read_all().to_pylist():
        assert row["is_complete"]
        by_key.setdefault((row["topic"], row["key"]), []).append(row["physical_offset"])
    for question, offsets in zip(asked, expected, strict=True):
        assert [one for one in by_key[question] if one is not None] == offsets


def _ids(record: RecordFields) -> list[str]:
    assert isinstance(record.properties, str)
    return unique_keys(record.properties)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("indexed", [0, 3, 99])
def test_the_table_finds_each_by_unique_key(tmp_path: Path, indexed: int) -> None:
    _, records = _store(tmp_path / "s", 4, indexed)
    of_list = [record for record in records if len(set(_ids(record))) > 1]
    for record in of_list[::9]:
        for wanted in _ids(record):
            table = to_arrow(
                tmp_path / "s", ["unique_keys", "unique_key"], unique_key=wanted
            ).read_all()
            expected = [
                _ids(one) for one in records if wanted in _ids(one) and one.sys_flag != _ROLLBACK
            ]
            assert table["unique_keys"].to_pylist() == expected
            assert table["unique_key"].to_pylist() == [ids[-1] for ids in expected]


def test_a_store_that_shows_no_sign_of_five_is_not_scanned_for_them(tmp_path: Path) -> None:
    text = f"UNIQ_KEY\x01{an_id(1)}\x02UNIQ_KEY\x01{an_id(2)}"
    log = forge_log([RecordFields(properties=text)] * 9, file_bytes=FILE_BYTES)
    write_store(tmp_path / "s", log.files())
    with MessageStore(tmp_path / "s") as store:
        assert not store.may_have_replaced_ids


@pytest.mark.usefixtures("small")
def test_an_absent_id_costs_no_scan_once_the_log_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned: list[int] = []
    scan = range_scan.scan_range

    def recording(*arguments: object, **options: object) -> object:
        scanned.append(1)
        return scan(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(range_scan, "scan_range", recording)
    monkeypatch.setattr(CommitLogFile, "LEAST_KEPT_BYTES", 1)
    _store(tmp_path / "s", 5, 99)
    for expected in (True, False):
        with MessageStore(tmp_path / "s") as store:
            files = len(store.commit_log.files)
            assert not store.query("T", "no id of a client").messages
            assert scanned == []
            assert not store.query("T", an_id(77_777)).messages
            # The first store scans all files, and saves the result. The last file may have grown: it is scanned again.
            assert len(scanned) == (files if expected else 1)
            scanned.clear()


@pytest.mark.usefixtures("small")
def test_damage_leaves_the_answer_incomplete(tmp_path: Path) -> None:
    log, records = _store(tmp_path / "s", 6, 99)
    path = tmp_path / "s" / "commitlog" / f"{0:020d}"
    with open(path, "r+b") as file:
        file.seek(log.offsets[5] + 4)
        file.write(bytes(4))
    key = _ids(records[5])[0]
    for _ in range(2):
        with MessageStore(tmp_path / "s") as store:
            assert not store.query("T", key).is_complete
            assert store.query("T", "k").is_complete  # answered by the index, without a scan
    answer = reput.look_up(tmp_path / "s", [("T", an_id(1))])
    assert answer.read_all()["is_complete"].to_pylist() == [False]


def test_messages_that_are_put_while_the_store_is_open_are_found(tmp_path: Path) -> None:
    records = list(_records(8))
    log = forge_log(records, file_bytes=1 << 20)
    ((start, data),) = log.files()
    half = log.offsets[150]
    write_store(tmp_path / "s", [(start, data[:half] + bytes(len(data) - half))])
    with MessageStore(tmp_path / "s") as store:
        for stop in (150, 300):
            with open(tmp_path / "s" / "commitlog" / f"{0:020d}", "r+b") as file:
                file.write(data[: log.offsets[stop] if stop < 300 else len(data)])
            for number in range(0, 300, 11):
                topic, key = records[number].topic, _ids(records[number])[0]
                assert isinstance(topic, str)
                expected = _expected(log, records, topic, key)
                seen = [offset for offset in expected if stop == 300 or offset < half]
                assert [one.physical_offset for one in store.query(topic, key).messages] == seen


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("UNIQ_KEY\x01a", ["a"]),
        ("UNIQ_KEY\x01a\x02UNIQ_KEY\x01\x02UNIQ_KEY\x01b\x01c\x02", ["a", "b\x01c"]),
        ("XUNIQ_KEY\x01a\x02UNIQ_KEY\x01b", ["b"]),
    ],
)
def test_unique_keys(text: str, expected: list[str]) -> None:
    assert unique_keys(text) == expected


def test_what_looks_like_an_id() -> None:
    assert may_be_replaced_id(an_id(1))
    assert may_be_replaced_id("F" * 56)
    for other in ("order-7", "F" * 31, an_id(15).lower(), "", "G" * 32):
        assert not may_be_replaced_id(other)


@pytest.fixture(scope="module")
def sent(golden: Golden) -> tuple[Path, list[tuple[str, str, str]]]:
    """Return a broker's store, and the topic, producer's id and place of each message that was sent in a list."""
    store = golden("five_life")
    rows = [row for row in read_named(store.root / "sent.tsv") if row["kind"] == "batch"]
    found = []
    for row in rows:
        ids, places = row["msgId"].split(","), row["offsetMsgId"].split(",")
        assert row["ownUniqKey"] in ids
        found.append((row["topic"], row["ownUniqKey"], places[ids.index(row["ownUniqKey"])]))
    assert len(found) == 418
    return store.path, found


def test_every_sent_id_is_found_by_queries(sent: tuple[Path, list[tuple[str, str, str]]]) -> None:
    path, messages = sent
    with reput.open_store(path) as store:
        for topic, key, place in messages if IS_THOROUGH else messages[::6]:
            for found in (store.query(topic, key), store.query(None, key), store.find_by_id(key)):
                assert [one.message_id for one in found.messages] == [place]
                assert found.is_complete


def test_every_sent_id_is_found_by_a_look_up(sent: tuple[Path, list[tuple[str, str, str]]]) -> None:
    path, messages = sent
    rows = reput.look_up(path, [message[:2] for message in messages], columns=["message_id"])
    found = rows.read_all().to_pylist()
    assert [row["message_id"] for row in found] == [place for *_, place in messages]
    assert all(row["is_complete"] for row in found)


def test_every_sent_id_is_found_by_the_table(sent: tuple[Path, list[tuple[str, str, str]]]) -> None:
    path, messages = sent
    keys = [key for _, key, _ in messages]
    for some in (keys, keys[7:8], keys[400:]):
        table = to_arrow(path, ["message_id", "unique_keys"], unique_key=some).read_all()
        assert sorted(ids[0] for ids in table["unique_keys"].to_pylist()) == sorted(some)


def test_a_trace_by_a_sent_id_has_that_message_and_no_other_of_its_list(
    sent: tuple[Path, list[tuple[str, str, str]]],
) -> None:
    path, messages = sent
    with MessageStore(path) as store:
        for topic, key, place in messages[::6]:
            for life in (
                trace_life([store], message_id=key),
                trace_life([store], key=key, topic=topic),
            ):
                assert [event.message.message_id for event in life.events] == [place]
                assert life.is_complete
        list_id = store.find_by_id(messages[0][1]).messages[0].unique_key
        assert list_id is not None
        whole = trace_life([store], message_id=list_id)
        numbers = {event.life for event in whole.events}
        assert len(whole.events) == len(numbers) > 1
