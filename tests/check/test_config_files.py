"""Files of config/ that a broker cannot read, and files in commitlog/ with which it does not start."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput import Message, open_store
from reput.base.findings import Kind, Severity
from reput.core.store.topics_file import topic_names
from tests.check.checking import checked
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.small import SMALL

Golden = Callable[[str], GoldenStore]
WHOLE = json.dumps({"subscriptionGroupTable": {"g": {"groupName": "g"}}}).encode()
NAME = "subscriptionGroup.json"
CUT = WHOLE[:30]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with open_store(path, "rw", config=SMALL) as opened:
        opened.put(Message("T", b"x"))
    (path / "config").mkdir(exist_ok=True)
    return path


@pytest.mark.parametrize(
    ("main", "before", "at_start"),
    [
        (CUT, b"x", "does not start"),
        (b"", b"x", "does not start"),
        (None, b"x", "does not start"),
        (b"[1]", WHOLE[:-1], "does not start"),
        (CUT, WHOLE, f"reads {NAME}.bak in its place"),
        (None, WHOLE, f"reads {NAME}.bak in its place"),
        (CUT, None, "starts without the settings of groups"),
        (b"", b"", "starts without the settings of groups"),
        (WHOLE, b"x", None),
        (WHOLE, None, None),
        (None, None, None),
    ],
)
def test_a_config_file_is_judged_as_a_broker_reads_it(
    store: Path, main: bytes | None, before: bytes | None, at_start: str | None
) -> None:
    for name, data in ((NAME, main), (f"{NAME}.bak", before)):
        if data is not None:
            (store / "config" / name).write_bytes(data)
    for quick in (True, False):
        found = checked(store, quick=quick)
        assert [one.at_next_start for one in found] == ([] if at_start is None else [at_start])
        for one in found:
            assert (one.kind, one.severity) == (Kind.CONFIG_FILE, Severity.DAMAGE)
            assert one.file == str(store / "config" / NAME)


@pytest.mark.parametrize("name", ["timermetrics", "lmqConsumerOffset.json"])
def test_further_files_of_a_broker_of_5_x_are_read(
    golden: Golden, tmp_path: Path, name: str
) -> None:
    """`TimerMessageStore.load` and `LmqConsumerOffsetManager` read them as other files of config/."""
    store = copy_store(golden("five_timer").path, tmp_path / "store")
    assert checked(store, quick=True) == []
    for suffix in ("", ".bak"):
        (store / "config" / f"{name}{suffix}").write_bytes(CUT)
    for quick in (True, False):
        (found,) = checked(store, quick=quick)
        assert (found.kind, found.at_next_start) == (Kind.CONFIG_FILE, "does not start")


@pytest.mark.parametrize(
    ("before", "at_start"),
    [
        (CUT, "starts without the progress of compaction"),
        (None, "starts without the progress of compaction"),
        (b'{"queueOffsetMap":{}}', "reads position-checkpoint.bak in its place"),
    ],
)
def test_a_broker_starts_without_the_progress_of_compaction(
    golden: Golden, tmp_path: Path, before: bytes | None, at_start: str
) -> None:
    """`CompactionPositionMgr` ignores whether its files can be read."""
    store = copy_store(golden("five_compaction").path, tmp_path / "store")
    path = store / "compaction" / "position-checkpoint"
    path.write_bytes(CUT)
    old = path.with_name(f"{path.name}.bak")
    old.unlink(missing_ok=True)
    if before is not None:
        old.write_bytes(before)
    for quick in (True, False):
        (found,) = checked(store, quick=quick)
        assert (found.kind, found.file) == (Kind.CONFIG_FILE, str(path))
        assert found.at_next_start == at_start


def test_number_keys_without_quotes_are_no_damage(store: Path) -> None:
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T@g":{0:1,1:2}}}')
    assert checked(store) == []


def test_committed_offsets_and_topics_are_those_that_a_broker_reads(store: Path) -> None:
    config = store / "config"
    (config / "consumerOffset.json").write_bytes(b'{"offsetTable":{"T@')
    (config / "consumerOffset.json.bak").write_text('{"offsetTable":{"T@g":{0:1}}}')
    (config / "topics.json").write_bytes(b"")
    (config / "topics.json.bak").write_text('{"topicConfigTable":{"T":{}}}')
    assert topic_names(str(store)) == {"T"}
    (lag,) = reput.lag(store).queues
    assert (lag.group, lag.committed) == ("g", 1)


@pytest.mark.parametrize("name", ["basic", "five_default"])
def test_foreign_files_in_the_log_are_judged_by_the_version(
    name: str, golden: Golden, tmp_path: Path
) -> None:
    store = copy_store(golden(name).path, tmp_path / "store")
    log = store / "commitlog"
    copy = max(log.iterdir()).with_suffix(".bak")
    copy.write_bytes(max(log.iterdir()).read_bytes())
    (log / "lost+found").mkdir()
    found = {
        one.file: one
        for one in checked(store, quick=True)
        if "found" in one.file or one.file == str(copy)
    }
    file, folder = found[str(copy)], found[str(log / "lost+found")]
    assert (file.kind, file.at_next_start) == (Kind.FOREIGN_LOG_FILE, "does not start")
    is_five = name.startswith("five")
    assert folder.kind is (Kind.FOREIGN_FILE if is_five else Kind.FOREIGN_LOG_FILE)
    assert folder.at_next_start == ("ignores it" if is_five else "does not start")
