"""JSON Lines: the lines of `reput query`, all of them, in the order of the log."""

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reput.engine.messages.codec import message_line
from reput.engine.messages.message_lines import log_lines
from reput.errors import StoreAccessError, StoreChangedError, UsageError
from reput.format.commit_log import decode
from reput.wings.lakes.json_lines import export_lines
from reput.wings.lakes.planning import open_stores
from reput.wings.lakes.report import ExportReport
from reput.wings.lakes.request import ExportRequest, ExportSettings
from tests.golden.stores import SHIPPED, GoldenStore
from tests.lakes.exporting import expire, grow_to
from tests.writer.crashing import KilledError

Golden = Callable[[str], GoldenStore]


def run(
    store: Path,
    output: Any,
    incremental: bool = False,
    fail_on_data_loss: bool = True,
    **request: Any,
) -> ExportReport:
    place = str(output) if isinstance(output, Path) else output
    return export_lines(
        open_stores([str(store)]), place, ExportRequest(**request),
        ExportSettings(incremental, fail_on_data_loss),
    )  # fmt: skip


def lines_of(store: GoldenStore) -> Iterator[bytes]:
    """Return each message as a line, by the offsets of the golden table."""
    for message in store.messages:
        at = message.physical_offset
        start = at - at % store.commit_log_file_bytes
        data = (store.path / "commitlog" / f"{start:020d}").read_bytes()
        yield message_line(decode(data, at - start)) + b"\n"


@pytest.mark.parametrize("name", [name for name in SHIPPED if name != "orders"])
def test_every_message_is_the_line_that_a_query_prints(golden: Golden, name: str) -> None:
    store, out = golden(name), io.BytesIO()
    report = run(store.path, out)
    assert out.getvalue() == b"".join(lines_of(store))
    assert (report.rows, report.damage) == (len(store.messages), [])


def test_topics_and_times(golden: Golden) -> None:
    store, out = golden("orders"), io.BytesIO()
    run(store.path, out, topics=("payments",), begin_ms=1792000000000, end_ms=1792100000000)
    found = [json.loads(line)["physical_offset"] for line in out.getvalue().splitlines()]
    assert found == [
        m.physical_offset
        for m in store.messages
        if m.topic == "payments" and 1792000000000 <= m.store_timestamp <= 1792100000000
    ]
    assert len(found) > 100


def test_a_file_grows_by_what_is_new_and_survives_deaths(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, store, out = golden("basic"), tmp_path / "store", tmp_path / "out.jsonl"
    ends = [m.physical_offset + m.size for m in source.messages]
    for stop in (ends[1000], ends[1000], ends[2500], ends[-1]):
        grow_to(source.path, store, stop)

        def dying_lines(data: Any, positions: Any, offsets: Any) -> Iterator[Any]:
            yield from log_lines(data, positions[:400], offsets[:400])
            raise KilledError

        if stop != ends[1000] or not out.exists():
            with monkeypatch.context() as patch:
                patch.setattr("reput.wings.lakes.json_lines.log_lines", dying_lines)
                with pytest.raises(KilledError):
                    run(store, out, incremental=True)
        run(store, out, incremental=True)
        whole = b"".join(lines_of(source))
        assert whole.startswith(out.read_bytes())
        assert len(out.read_bytes().splitlines()) == sum(end <= stop for end in ends)
    with pytest.raises(UsageError, match="pass incremental to add"):
        run(store, out)


def test_what_cannot_be_is_one_line(golden: Golden, tmp_path: Path) -> None:
    path, out = golden("basic").path, tmp_path / "out.jsonl"
    out.write_text("mine")
    with pytest.raises(UsageError, match="is not an export"):
        run(path, out)
    out.unlink()
    with pytest.raises(UsageError, match="needs a file"):
        run(path, io.BytesIO(), incremental=True)
    with pytest.raises(UsageError, match="columns is only for tables"):
        run(path, out, columns=("topic",))
    with pytest.raises(UsageError, match="body, json_body, upsert_by or"):
        run(path, out, json_body="infer")
    run(path, out)
    with pytest.raises(UsageError, match="another topics"):
        run(path, out, incremental=True, topics=("other",))
    out.write_bytes(out.read_bytes()[:-1])
    with pytest.raises(StoreAccessError, match="shorter than"):
        run(path, out, incremental=True)


def test_expired_and_changed_stores_are_told(golden: Golden, tmp_path: Path) -> None:
    source, store, out = golden("basic"), tmp_path / "store", tmp_path / "out.jsonl"
    grow_to(source.path, store, 100_000)
    run(store, out)
    grow_to(source.path, store, 1 << 40)
    expire(store, 4)
    with pytest.raises(StoreChangedError, match="lost before they were exported"):
        run(store, out, incremental=True)
    report = run(store, out, incremental=True, fail_on_data_loss=False)
    assert [lost.length for lost in report.missing] == [4 * 65536 - report.stores[str(store)][0]]


def test_an_export_whose_file_was_deleted_begins_anew(golden: Golden, tmp_path: Path) -> None:
    store, out = golden("lmq"), tmp_path / "out.jsonl"
    run(store.path, out)
    first = out.read_bytes()
    with pytest.raises(UsageError, match="exported there already"):
        run(store.path, out)
    out.unlink()
    assert run(store.path, out).committed
    assert out.read_bytes() == first

    out.unlink()
    with pytest.raises(StoreAccessError, match="shorter than"):
        run(store.path, out, incremental=True)
    assert not out.exists()
