"""Indexes that follow a growing log: at any moment they have the bytes that a rebuild would write."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reput.core.index.writer import IndexFileWriter
from reput.engine.rebuild.follow.state import STATE_FILE, FollowState, begin, owning
from reput.errors import StoreLockedError, UsageError
from tests.follow.following import GrowingLog, assert_as_rebuilt, catch_up, open_follower
from tests.golden.stores import GoldenStore
from tests.oracle.forge import RecordFields, flip_bit, forge_log
from tests.oracle.random_logs import LogOptions, random_log
from tests.rebuild.rebuilding import SMALL, golden_config, rebuild
from tests.slow import slow_from
from tests.writer.crashing import KilledError, dying

pytestmark = pytest.mark.usefixtures("without_waiting")
Golden = Callable[[str], GoldenStore]


def golden_log(golden: Golden, name: str, folder: Path) -> GrowingLog:
    paths = sorted((golden(name).path / "commitlog").iterdir())
    return GrowingLog(folder, [(int(path.name), path.read_bytes()) for path in paths])


@pytest.mark.parametrize("name", ["basic", "timed", "tricky", "lmq", "orders"])
@pytest.mark.parametrize("opened", slow_from(1, ["once", "for each step"]))
def test_a_log_that_grows_is_followed_byte_for_byte(
    golden: Golden, tmp_path: Path, name: str, opened: str
) -> None:
    log = golden_log(golden, name, tmp_path / "store")
    config = golden_config(golden(name))
    messages = golden(name).messages
    ends = [row.physical_offset + row.size for row in messages[:: len(messages) // 7]]
    log.write_to(ends[0] - 1)  # a record without its last byte
    follower = open_follower(log, tmp_path / "out", config)
    for end in [*ends, log.last]:
        log.write_to(end)
        catch_up(follower)
        follower.sync()
        assert_as_rebuilt(log, tmp_path / "out", config)
        if opened == "for each step":
            follower.close()
            follower = open_follower(log, tmp_path / "out", config)
    follower.close()
    assert_as_rebuilt(log, tmp_path / "out", config)


@pytest.mark.parametrize("seed", range(4))
def test_random_logs_with_damage_message_by_message(tmp_path: Path, seed: int) -> None:
    made = random_log(seed, LogOptions(records=60, irregular=seed % 2 == 1))
    log = GrowingLog(tmp_path / "store", [(start, bytes(data)) for start, data in made.files])
    follower = None
    for end in range(0, log.last, 1501):
        log.write_to(end)
        follower = follower or open_follower(log, tmp_path / "out", SMALL)
        catch_up(follower)
    assert follower is not None
    log.write_to(log.last)
    catch_up(follower)
    follower.close()
    assert_as_rebuilt(log, tmp_path / "out", SMALL)


@pytest.mark.parametrize("last_step", range(0, 120, 7))
def test_a_run_that_is_killed_is_continued(golden: Golden, tmp_path: Path, last_step: int) -> None:
    log = golden_log(golden, "basic", tmp_path / "store")
    config = golden_config(golden("basic"))
    half = golden("basic").messages[2000].physical_offset
    log.write_to(half)
    first = open_follower(log, tmp_path / "out", config)
    catch_up(first)
    first.close()
    log.write_to(log.last)
    with dying(last_step):
        killed = open_follower(log, tmp_path / "out", config)
        while killed.poll() or killed.has_more:
            killed.sync()
        killed.close()
    follower = open_follower(log, tmp_path / "out", config)
    catch_up(follower)
    follower.close()
    assert_as_rebuilt(log, tmp_path / "out", config)


def test_a_run_that_is_killed_while_it_puts_keys(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kill the run after it has written items and slots, and before it writes the header that counts them."""
    log = golden_log(golden, "basic", tmp_path / "store")
    config = golden_config(golden("basic"))
    log.write_to(golden("basic").messages[1000].physical_offset)
    follower = open_follower(log, tmp_path / "out", config)
    catch_up(follower)
    log.write_to(log.last)
    with monkeypatch.context() as patched:
        patched.setattr(IndexFileWriter, "_write_header", _killed)
        with pytest.raises(KilledError):
            catch_up(follower)
    follower = open_follower(log, tmp_path / "out", config)
    catch_up(follower)
    follower.close()
    assert_as_rebuilt(log, tmp_path / "out", config)


def _killed(_: IndexFileWriter) -> None:
    raise KilledError


def test_it_goes_on_from_a_rebuild(golden: Golden, tmp_path: Path) -> None:
    log = golden_log(golden, "timed", tmp_path / "store")
    config = golden_config(golden("timed"))
    log.write_to(golden("timed").messages[3000].physical_offset)
    rebuild(log.path, tmp_path / "out", config)
    log.write_to(log.last)
    follower = open_follower(log, tmp_path / "out", config)
    catch_up(follower)
    assert follower.report.messages < 2100, "the rebuilt part is not read again"
    follower.close()
    assert_as_rebuilt(log, tmp_path / "out", config)


def test_half_a_record_is_waited_for(tmp_path: Path) -> None:
    records = [RecordFields(properties={"KEYS": f"k{n}"}, body=b"b" * 40) for n in range(20)]
    made = forge_log(records, file_bytes=1 << 14)
    log = GrowingLog(tmp_path / "store", made.files())
    follower = None
    for missing in range(0, 150, 3):
        log.write_to(made.offsets[11] - missing)
        follower = follower or open_follower(log, tmp_path / "out", SMALL)
        follower.poll()
    assert follower is not None
    assert follower.report.damage == []
    log.write_to(log.last)
    catch_up(follower)
    follower.close()
    assert_as_rebuilt(log, tmp_path / "out", SMALL)


@pytest.mark.parametrize("meanwhile", ["running", "stopped", "killed"])
def test_a_log_that_was_cut_and_written_anew_is_followed(tmp_path: Path, meanwhile: str) -> None:
    old = [RecordFields(properties={"KEYS": f"old{n}"}) for n in range(60)]
    made = forge_log(old, file_bytes=1 << 12)
    log = GrowingLog(tmp_path / "store", made.files())
    log.write_to(log.last)
    follower = open_follower(log, tmp_path / "out", SMALL)
    catch_up(follower)
    if meanwhile != "running":
        follower.close(sync=meanwhile == "stopped")
    new = [RecordFields(properties={"KEYS": f"new{n}"}, store_timestamp=9000) for n in range(60)]
    again = forge_log(old[:30] + new, file_bytes=1 << 12)
    log = GrowingLog(tmp_path / "again", again.files())
    log.write_to(log.last)
    for path in (tmp_path / "store" / "commitlog").iterdir():
        path.unlink()
    for path in (log.path / "commitlog").iterdir():
        (tmp_path / "store" / "commitlog" / path.name).write_bytes(path.read_bytes())
    if meanwhile == "running":
        catch_up(follower)
        assert "the log has changed" in " ".join(follower.report.notes)
    else:
        follower = open_follower(log, tmp_path / "out", SMALL)
        catch_up(follower)
    follower.close()
    assert_as_rebuilt(log, tmp_path / "out", SMALL)


def test_what_has_expired_leaves_the_indexes_as_a_broker_has_it(
    golden: Golden, tmp_path: Path
) -> None:
    log = golden_log(golden, "basic", tmp_path / "store")
    config = golden_config(golden("basic"))
    log.write_to(log.last)
    follower = open_follower(log, tmp_path / "out", config)
    catch_up(follower)
    before = len(list((tmp_path / "out" / "index").iterdir()))
    files = sorted((log.path / "commitlog").iterdir())
    for path in files[:-4]:
        path.unlink()
    catch_up(follower)
    begin_at = int(files[-4].name)
    assert follower.report.log_begin == begin_at
    assert follower.report.expired_files > 10
    left = sorted((tmp_path / "out" / "index").iterdir())
    assert 1 < len(left) < before
    ends = [int.from_bytes(path.read_bytes()[24:32], "big") for path in left]
    assert all(end >= begin_at for end in ends)
    follower.close()
    again = open_follower(log, tmp_path / "out", config)
    assert sorted((tmp_path / "out" / "index").iterdir()) == left
    again.close()


def test_messages_that_expire_unread_are_told(golden: Golden, tmp_path: Path) -> None:
    log = golden_log(golden, "basic", tmp_path / "store")
    config = golden_config(golden("basic"))
    log.write_to(golden("basic").messages[500].physical_offset)
    follower = open_follower(log, tmp_path / "out", config)
    catch_up(follower)
    position = follower.report.position
    log.write_to(log.last)
    files = sorted((log.path / "commitlog").iterdir())
    for path in files[:10]:
        path.unlink()
    catch_up(follower)
    (lost,) = follower.report.damage
    assert (lost.physical_offset, lost.length) == (position, int(files[10].name) - position)
    assert "expired before they were read" in lost.detail
    follower.close()


def test_damage_before_the_end_is_passed_and_told(golden: Golden, tmp_path: Path) -> None:
    made = forge_log(
        [RecordFields(properties={"KEYS": f"k{n}"}) for n in range(90)], file_bytes=1 << 12
    )
    hit = made.offsets[10]
    log = GrowingLog(tmp_path / "store", flip_bit(made.files(), hit + 5, 0))
    log.write_to(made.offsets[20])
    follower = open_follower(log, tmp_path / "out", SMALL)
    catch_up(follower)
    assert follower.report.damage == [], "it may be the end of the log"
    log.write_to(log.last)
    catch_up(follower)
    (lost,) = follower.report.damage
    assert (lost.physical_offset, lost.length) == (hit, (1 << 12) - hit)
    follower.close()
    assert_as_rebuilt(log, tmp_path / "out", SMALL)


def test_settings_are_remembered_and_others_refused(golden: Golden, tmp_path: Path) -> None:
    store, output = golden("basic").path, tmp_path / "out"
    config = golden_config(golden("basic"))
    with owning(output):
        assert begin(store, output, config) == FollowState(output, config, is_fresh=True)
        assert begin(store, output, None) == FollowState(output, config, is_fresh=True)
        with pytest.raises(UsageError, match="created with other values of hash_slots"):
            begin(store, output, replace(config, hash_slots=7))
        with (
            pytest.raises(StoreLockedError, match="another process maintains these"),
            owning(output),
        ):
            pass
    truncated = tmp_path / "other" / STATE_FILE
    truncated.parent.mkdir()
    truncated.write_text("{")
    with pytest.raises(Exception, match="delete it"):
        begin(store, truncated.parent, None)
