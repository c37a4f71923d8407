"""Log files that were replaced by copies of other ones: their records state other places, so they are unreadable."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import reput
from reput.base.findings import Kind
from reput.core.log.walk import WALKED_BYTES
from reput.core.query import search
from reput.engine.messages.tail import LogTail, TailFilter
from reput.errors import CorruptMessageError, StoreError
from reput.format.commit_log import decode
from tests.cli.running import reput as command
from tests.small import SMALL_16K

_MESSAGES = 140
# Which file replaces which: a copy of an older file in the middle and at the end of the log, and of a later one.
COPIES = [(0, 1), (0, 3), (2, 0)]


def _sent() -> Iterator[reput.Message]:
    for number in range(_MESSAGES):
        yield reput.Message("T", b"x" * 300, keys=[f"k{number}"])


@pytest.fixture(params=COPIES, ids=["middle", "last", "first"])
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, set[int]]:
    """A store of which one log file was replaced, and the numbers of the messages that it has lost."""
    path = tmp_path / "store"
    with reput.open_store(path, mode="rw", config=SMALL_16K) as store:
        offsets = [result.physical_offset for result in store.put_many(_sent())]
    files = sorted((path / "commitlog").iterdir())
    source, target = (files[number] for number in request.param)
    begin = int(target.name)
    shutil.copyfile(source, target)
    lost = {n for n, at in enumerate(offsets) if begin <= at < begin + target.stat().st_size}
    assert 20 < len(lost) < 40
    return path, lost


@pytest.mark.parametrize("index", ["spot-checked", "proven", "missing"])
@pytest.mark.parametrize("walked", [WALKED_BYTES, 0], ids=["walk", "kernel"])
def test_no_key_of_a_replaced_file_is_missed_without_a_word(
    damaged: tuple[Path, set[int]], index: str, walked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, lost = damaged
    monkeypatch.setattr(search, "WALKED_BYTES", walked)
    if index == "proven":
        reput.prove(path)
    elif index == "missing":
        shutil.rmtree(path / "index")
    with reput.open_store(path) as store:
        for number in range(0, _MESSAGES, 11):
            result = store.query("T", f"k{number}")
            assert [message.keys for message in result.messages] == (
                [] if number in lost else [[f"k{number}"]]
            )
            assert number not in lost or not result.is_complete
            window = store.query("T", f"k{number}", begin=0, end=1 << 50)
            assert number not in lost or not window.is_complete


def test_reads_and_pulls_refuse_the_records_of_a_replaced_file(
    damaged: tuple[Path, set[int]],
) -> None:
    path, lost = damaged
    with reput.open_store(path) as store:
        for number in range(_MESSAGES):
            if number in lost:
                with pytest.raises(StoreError):
                    store.get_by_queue("T", 0, number)
                with pytest.raises(CorruptMessageError):
                    store.pull("T", 0, number, 1)
            else:
                assert store.get_by_queue("T", 0, number).keys == [f"k{number}"]
        (begin,) = (
            int(file.name)
            for file in (path / "commitlog").iterdir()
            if _stated(file) != int(file.name)
        )
        with pytest.raises(CorruptMessageError, match="states physical offset"):
            store.get(begin)
        with pytest.raises(CorruptMessageError, match="states physical offset"):
            store.get_record(begin)


def _stated(file: Path) -> int:
    return int.from_bytes(file.read_bytes()[28:36], "big")


@pytest.mark.parametrize("topic", [None, "T"])
def test_a_tail_reports_a_replaced_file(damaged: tuple[Path, set[int]], topic: str | None) -> None:
    path, lost = damaged
    with reput.open_store(path) as store:
        tail = LogTail(store, TailFilter(topic))
        found = [message.keys for message in tail.last(_MESSAGES)]
        assert found == [[f"k{number}"] for number in range(_MESSAGES) if number not in lost]
        assert tail.damage


def test_tables_and_exports_report_a_replaced_file(
    damaged: tuple[Path, set[int]], tmp_path: Path
) -> None:
    path, lost = damaged
    with pytest.raises(CorruptMessageError, match="other physical offsets"):
        reput.dataset(path).to_table()
    report = reput.export(path, tmp_path / "out", fail_on_data_loss=False)
    assert report.rows == _MESSAGES - len(lost)
    assert [found.kind for found in report.damage] == [Kind.MISPLACED_RECORD]
    lines = command("export", str(path), "-", "--to", "jsonl", "--on-corrupt", "skip")
    rows = [json.loads(line) for line in lines.lines]
    assert [row["keys"] for row in rows] == [
        [f"k{number}"] for number in range(_MESSAGES) if number not in lost
    ]
    assert lines.code == 3


def test_a_look_up_is_incomplete_over_a_replaced_file(damaged: tuple[Path, set[int]]) -> None:
    path, lost = damaged
    keys = [("T", f"k{number}") for number in range(_MESSAGES)]
    answer = reput.look_up(path, keys, columns=["keys"]).read_all()
    (coverage,) = reput.reports.coverage_of(answer)
    assert not coverage["is_complete"]
    assert sorted(filter(None, answer["keys"].to_pylist())) == sorted(
        [f"k{number}"] for number in range(_MESSAGES) if number not in lost
    )


def test_a_brokers_answer_has_what_a_broker_would_send(tmp_path: Path) -> None:
    """A broker does not notice that records belong to another file, so its answers have them."""
    path = tmp_path / "store"
    with reput.open_store(path, mode="rw", config=SMALL_16K) as store:
        store.put_many(reput.Message("T", b"x" * 300, keys=["k"]) for _ in range(_MESSAGES))
    files = sorted((path / "commitlog").iterdir())
    shutil.copyfile(files[0], files[2])
    with reput.open_store(path) as store:
        found, records, _ = store.query_records("T", "k", 64, 0, 1 << 62, 1 << 20)
        stated = [decode(record).physical_offset for record in records]
    assert len(records) == len(found.physical_offsets) == 64
    begin, end = int(files[2].name), int(files[3].name)
    expected = [at - begin if begin <= at < end else at for at in found.physical_offsets]
    assert stated == expected
    assert stated != list(found.physical_offsets)
    printed = command("query", path, "--topic", "T", "--key", "k", "--compat", "--format", "jsonl")
    lines = map(json.loads, printed.lines)
    assert sorted(one["physical_offset"] for one in lines) == sorted(expected)
