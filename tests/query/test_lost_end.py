"""The newest messages of a log are lost, and its index, a queue or the checkpoint shows it: all readers report it."""

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.base.findings import Kind
from reput.cli.main import DAMAGED, NOT_FOUND
from reput.engine.messages.tail import LogTail, TailFilter
from reput.errors import CorruptMessageError, FormatError
from reput.wings.console.sweep import Sweep
from reput.wings.lakes.request import ExportRequest
from tests.cli.running import reput as run
from tests.index.proving import messages
from tests.lookup.looking_up import bulk
from tests.query.stores import build_store
from tests.tables.reading import plan

FILE_BYTES = 1 << 14
COUNT = 160


def last_file(path: Path) -> Path:
    return max((path / "commitlog").iterdir())


def delete(path: Path) -> None:
    last_file(path).unlink()


def empty(path: Path) -> None:
    last_file(path).write_bytes(b"")


def cut(path: Path) -> None:
    last_file(path).write_bytes(last_file(path).read_bytes()[:700])


def zero(path: Path) -> None:
    data = last_file(path).read_bytes()
    last_file(path).write_bytes(data[:700].ljust(len(data), b"\0"))


LOSSES: dict[str, Callable[[Path], None]] = {
    "deleted": delete, "empty": empty, "cut": cut, "zeroed": zero
}  # fmt: skip
KNOWN = ("by the index", "by the checkpoint")


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    log = messages(COUNT)
    assert log.end_offset % FILE_BYTES > 2000
    path = build_store(tmp_path / "store", log.files(), hash_slots=64, index_items=200)
    stored_ms = 10_000 + 10 * (COUNT - 1)
    times = struct.pack(">qqq", stored_ms, stored_ms, stored_ms)
    (path / "checkpoint").write_bytes(times.ljust(4096, b"\0"))
    return path


@pytest.fixture(params=LOSSES)
def cut_off(request: pytest.FixtureRequest, whole: Path) -> Path:
    LOSSES[request.param](whole)
    return whole


@pytest.fixture(params=KNOWN)
def known(request: pytest.FixtureRequest, cut_off: Path) -> Path:
    """Return a store that lost messages, and in which only one file, named by the parameter, shows the loss."""
    if request.param == KNOWN[0]:
        (cut_off / "checkpoint").unlink()
    else:
        for file in (cut_off / "index").iterdir():
            file.unlink()
    return cut_off


def test_of_a_whole_log_nothing_is_reported(whole: Path) -> None:
    with reput.open_store(whole) as opened:
        assert opened.query("T", "k1").is_complete
        tail = LogTail(opened, TailFilter())
        assert len(tail.last(3)) == 3
        assert tail.damage == []
        assert opened.pull("T", 0, COUNT).messages == ()
    assert plan(whole).missing == []


def test_a_query_is_not_complete(known: Path) -> None:
    with reput.open_store(known) as opened:
        for key in ("k1", f"k{COUNT - 2}", "no such key"):
            found = opened.query("T", key)
            assert not found.is_complete
            assert found.coverage.unreadable[0].kind is Kind.LOST_LOG_END
    ran = run("query", known, "--topic", "T", "--key", "no such key")
    assert ran.code == DAMAGED
    assert "the newest messages are lost" in ran.err


def test_a_look_up_is_not_complete(known: Path, tmp_path: Path) -> None:
    rows = [("T", "k1", None, None), ("T", "no such key", None, None)]
    found = bulk(tmp_path / "staged", [known], rows)
    assert [row.coverage["is_complete"] for row in found] == [False, False]


def test_a_table_reports_what_is_missing(known: Path) -> None:
    (one,) = plan(known).missing
    assert one.lost.kind is Kind.LOST_LOG_END


def test_scans_of_the_log_compare_its_end_with_the_queues(cut_off: Path, tmp_path: Path) -> None:
    """Neither index nor checkpoint are left, and a scan without a key needs no queue."""
    shutil.rmtree(cut_off / "index")
    (cut_off / "checkpoint").unlink()
    (one,) = plan(cut_off).missing
    assert one.lost.kind is Kind.LOST_LOG_END
    assert not reput.export(cut_off, tmp_path / "all.jsonl", to="jsonl").is_complete
    for topic, is_complete in (("T", False), ("O", True)):
        request = ExportRequest(topics=(topic,), begin_ms=0, end_ms=1 << 40)
        report = reput.export(cut_off, tmp_path / topic, request=request)
        assert report.is_complete == is_complete
        assert report.committed
    assert run("stats", cut_off).code == DAMAGED
    with reput.open_store(cut_off) as opened:
        sweep = Sweep(opened, TailFilter(begin=0, end=1 << 40))
        next(sweep.steps())
        assert {finding.kind for finding in sweep.damage} == {Kind.LOST_LOG_END}


def test_tables_of_a_store_and_its_archive_report_it(whole: Path, tmp_path: Path) -> None:
    reput.archive(whole, tmp_path / "archive")
    cut(whole)
    joined = reput.with_archive(whole, tmp_path / "archive")
    assert not reput.export(joined, tmp_path / "all.jsonl", to="jsonl").is_complete


def test_a_tail_reports_it_and_exits_with_3(known: Path) -> None:
    with reput.open_store(known) as opened:
        for wanted in (TailFilter(), TailFilter("T"), TailFilter(key="k1")):
            tail = LogTail(opened, wanted)
            tail.last(5)
            assert Kind.LOST_LOG_END in {finding.kind for finding in tail.damage}
    assert run("tail", known).code == DAMAGED
    assert run("tail", known, "--lines", "all").code == DAMAGED


def test_a_pull_raises_and_is_never_at_the_end(cut_off: Path) -> None:
    with reput.open_store(cut_off) as opened:
        with pytest.raises(CorruptMessageError):
            opened.pull("T", 0, COUNT - 2)
        with pytest.raises(CorruptMessageError):
            opened.get_by_queue("T", 0, COUNT - 2)
        with pytest.raises(FormatError, match="the newest messages are lost"):
            opened.pull("T", 0, COUNT)


def test_nothing_found_in_a_whole_log_is_no_damage(whole: Path) -> None:
    assert run("query", whole, "--topic", "T", "--key", "no such key").code == NOT_FOUND
