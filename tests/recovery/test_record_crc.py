"""The CRC of whole records (5.x) at the start after a crash: compared only with forceVerifyPropCRC, as brokers do."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import reput
from reput.base.config import StoreConfig
from reput.base.findings import Kind
from reput.core.log import ends
from reput.core.log.ends import recovered_end
from reput.core.log.reader import CommitLogReader
from reput.core.log.sources import StoreLog
from reput.engine.writer.put.message import Message
from reput.errors import StoreError
from tests.check.checking import checked
from tests.cli.running import reput as reput_command
from tests.five import CONFIG
from tests.golden.stores import GoldenStore
from tests.recovery.entries import entries_of
from tests.recovery.test_nothing_readable_lost import kept_messages, messages_of

Golden = Callable[[str], GoldenStore]
FORCED = replace(CONFIG, check_record_crc=True)


def written(store: Path, config: StoreConfig = CONFIG) -> list[int]:
    """Offsets of 30 messages in a store that was not shut down cleanly."""
    with reput.open_store(store, mode="rw", config=config) as opened:
        places = [opened.put(Message("T", b"body", [f"k{n}"])) for n in range(30)]
    (store / "abort").write_bytes(b"")
    return [place.physical_offset for place in places]


def change(store: Path, physical_offset: int, text: bytes, other: bytes) -> None:
    """Replace a text in the record that begins at this offset."""
    path = max(p for p in (store / "commitlog").iterdir() if int(p.name) <= physical_offset)
    data = path.read_bytes()
    at = data.index(text, physical_offset - int(path.name))
    path.write_bytes(data[:at] + other + data[at + len(text) :])


@pytest.mark.parametrize("walked_bytes", [8 << 20, 0])
def test_a_wrong_record_ends_the_log_only_where_it_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, walked_bytes: int
) -> None:
    monkeypatch.setattr(ends, "WALKED_BYTES", walked_bytes)
    offsets = written(tmp_path)
    change(tmp_path, offsets[20], b"k20", b"k21")
    log = CommitLogReader(StoreLog(tmp_path))
    end = recovered_end(log, 0)
    assert end > offsets[-1]
    assert recovered_end(log, 0, whole_records=True) == offsets[20]
    change(tmp_path, offsets[10], b"body", b"BODY")
    assert recovered_end(log, 0) == offsets[10]
    assert recovered_end(log, 0, whole_records=True) == offsets[10]
    log.close()


def test_recovery_follows_the_setting(tmp_path: Path) -> None:
    offsets = written(tmp_path / "s")
    change(tmp_path / "s", offsets[20], b"k20", b"k21")
    with reput.open_store(tmp_path / "s", mode="rw", config=CONFIG) as opened:
        assert opened.end_offset() > offsets[-1]
    (tmp_path / "s" / "abort").write_bytes(b"")
    with pytest.raises(
        StoreError, match=r"readable messages: 10.*without this setting, all messages"
    ):
        reput.open_store(tmp_path / "s", mode="rw", config=FORCED)
    with reput.open_store(tmp_path / "s", mode="rw", config=FORCED, as_broker=True) as opened:
        assert opened.recovery.log_end == offsets[20]
        assert [m.queue_offset for m in opened.query("T", "k19").messages] == [19]
        assert opened.query("T", "k21").messages == ()


def test_the_last_message_is_kept_in_a_copy(tmp_path: Path) -> None:
    """Its body is right, so readers find it until the log is cut there."""
    offsets = written(tmp_path / "s")
    change(tmp_path / "s", offsets[-1], b"k29", b"k28")
    before = messages_of(tmp_path / "s")
    with reput.open_store(tmp_path / "s", mode="rw", config=FORCED) as opened:
        assert opened.recovery.log_end == offsets[-1]
        assert opened.recovery.kept_messages == 1
        assert any("does not match its CRC" in note for note in opened.recovery.notes)
        opened.put(Message("T", b"new"))
    after = kept_messages(tmp_path / "s")
    copy = messages_of(tmp_path / "s" / "reput.cut" / "1")
    assert {at: after[at] for at in before if at != offsets[-1]} | copy == before


def test_salvage_keeps_a_message_that_does_not_match_the_crc_of_its_record(tmp_path: Path) -> None:
    offsets = written(tmp_path / "s")
    (tmp_path / "s" / "abort").unlink()
    change(tmp_path / "s", offsets[20], b"k20", b"kxx")
    before = messages_of(tmp_path / "s")
    done = reput_command("repair", tmp_path / "s", "--salvage", "--runner", "serial")
    assert done.code == 3
    assert "remains  record_crc" in done.out
    assert messages_of(tmp_path / "s") == before


@pytest.mark.parametrize("crash", [True, False])
def test_a_damaged_topic_makes_no_queue(tmp_path: Path, crash: bool) -> None:
    """The body is right, so a broker creates a queue of the damaged name."""
    store = tmp_path / "s"
    offsets = written(store)
    before = entries_of(store)
    change(store, offsets[20], b"\x01T", b"\x01U")
    (store / "reput.known").unlink()
    (store / "abort").touch() if crash else (store / "abort").unlink(missing_ok=True)
    done = reput_command("recover", store)
    assert done.code == 3
    assert entries_of(store) == before
    assert not (store / "consumequeue" / "U").exists()
    with reput.open_store(store, mode="rw", config=CONFIG) as opened:
        put = opened.put(Message("T", b"next", ["k"]))
        assert put.queue_offset == len(offsets)
        assert len(opened.query("T", "k21").messages) == 1
    assert not (store / "consumequeue" / "U").exists()


def test_a_broker_makes_a_queue_of_a_damaged_topic(tmp_path: Path) -> None:
    store = tmp_path / "s"
    offsets = written(store)
    change(store, offsets[20], b"\x01T", b"\x01U")
    (store / "reput.known").unlink()
    assert reput_command("recover", store, "--as-broker").code == 0
    assert (store / "consumequeue" / "U").exists()


def test_a_log_without_crcs_is_not_cut_for_that(tmp_path: Path) -> None:
    offsets = written(tmp_path / "s", replace(CONFIG, append_record_crc=False))
    with pytest.raises(StoreError, match=r"has no CRC.*recover without this setting"):
        reput.open_store(tmp_path / "s", mode="rw", config=FORCED)
    with reput.open_store(tmp_path / "s", mode="rw", config=CONFIG) as opened:
        assert opened.get(offsets[-1]).body == b"body"


@pytest.mark.parametrize("has_next", [False, True])
def test_a_record_without_a_crc_is_damaged_if_the_next_record_has_one(
    tmp_path: Path, has_next: bool
) -> None:
    written(tmp_path)
    with reput.open_store(
        tmp_path, mode="rw", config=replace(CONFIG, append_record_crc=False)
    ) as opened:
        end = opened.put(Message("T", b"body")).physical_offset
    if has_next:
        with reput.open_store(tmp_path, mode="rw", config=CONFIG) as opened:
            opened.put(Message("T", b"body"))
    (tmp_path / "abort").write_bytes(b"")
    if has_next:
        with reput.open_store(tmp_path, mode="rw", config=FORCED, as_broker=True) as opened:
            assert opened.recovery.log_end == end
    else:
        with pytest.raises(StoreError, match=rf"offset {end}: this record has no CRC"):
            reput.open_store(tmp_path, mode="rw", config=FORCED, as_broker=True)


@pytest.mark.parametrize("walked_bytes", [8 << 20, 0])
def test_a_brokers_log_has_the_same_end_both_ways(
    golden: Golden, monkeypatch: pytest.MonkeyPatch, walked_bytes: int
) -> None:
    monkeypatch.setattr(ends, "WALKED_BYTES", walked_bytes)
    log = CommitLogReader(StoreLog(golden("five_crc").path))
    assert recovered_end(log, 0, whole_records=True) == recovered_end(log, 0)
    log.close()


def test_answers_as_a_brokers_depend_on_the_setting(tmp_path: Path) -> None:
    offsets = written(tmp_path)
    change(tmp_path, offsets[20], b"k20", b"k21")
    for config, end in ((CONFIG, None), (FORCED, offsets[20])):
        with reput.open_store(tmp_path, config=config) as opened:
            assert (opened.broker_end() == end) == (config is FORCED)
            assert bool(opened.query_message("T", "k25", 9, 0, 2**62).physical_offsets) == (
                config is CONFIG
            )


def test_a_check_tells_a_wrong_record_from_a_wrong_body(tmp_path: Path) -> None:
    offsets = written(tmp_path / "s")
    (tmp_path / "s" / "abort").unlink()
    change(tmp_path / "s", offsets[7], b"body", b"BODY")
    change(tmp_path / "s", offsets[20], b"k20", b"kxx")
    found = {one.kind: one for one in checked(tmp_path / "s", CONFIG)}
    assert found[Kind.BODY_CRC].physical_offset == offsets[7]
    assert found[Kind.RECORD_CRC].physical_offset == offsets[20]
    assert "does not notice it" in found[Kind.RECORD_CRC].at_next_start


def test_the_setting_of_a_broker() -> None:
    assert StoreConfig.from_broker_settings({"forceVerifyPropCRC": "true"}).check_record_crc
