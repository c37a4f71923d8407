"""Batch queues (5.x) that follow a growing log always match a rebuild."""

from collections.abc import Callable
from pathlib import Path

import pytest

from reput.base.config import StoreConfig
from tests.follow.following import GrowingLog, assert_as_rebuilt, catch_up, open_follower
from tests.golden.stores import GoldenStore
from tests.rebuild.rebuilding import rebuild

pytestmark = pytest.mark.usefixtures("without_waiting")
Golden = Callable[[str], GoldenStore]


def batch_log(golden: Golden, folder: Path) -> tuple[GrowingLog, StoreConfig, list[int]]:
    """The log, its settings, and some places where messages end."""
    store = golden("five_batch")
    paths = sorted((store.path / "commitlog").iterdir())
    log = GrowingLog(folder, [(int(path.name), path.read_bytes()) for path in paths])
    ends = [row.physical_offset + row.size for row in store.messages[:: len(store.messages) // 4]]
    return log, StoreConfig.from_broker_settings(store.config), [*ends, log.last]


def write_topics(golden: Golden, log: GrowingLog) -> None:
    (log.path / "config").mkdir()
    text = (golden("five_batch").path / "config" / "topics.json").read_text()
    (log.path / "config" / "topics.json").write_text(text)


@pytest.mark.parametrize("opened", ["once", "for each step", "killed"])
def test_batch_queues_of_a_log_that_grows(golden: Golden, tmp_path: Path, opened: str) -> None:
    log, config, ends = batch_log(golden, tmp_path / "store")
    write_topics(golden, log)
    log.write_to(ends[0] - 1)
    follower = open_follower(log, tmp_path / "out", config)
    for end in ends:
        log.write_to(end)
        catch_up(follower)
        if opened != "once":
            if opened == "for each step":
                follower.close()
            follower = open_follower(log, tmp_path / "out", config)
            catch_up(follower)
        follower.sync()
        assert_as_rebuilt(log, tmp_path / "out", config)
    follower.close()
    again = open_follower(log, tmp_path / "out", config)
    assert again.report.messages == 0, "nothing is read again after a clean end"
    again.close()


def test_they_continue_a_rebuild(golden: Golden, tmp_path: Path) -> None:
    log, config, ends = batch_log(golden, tmp_path / "store")
    write_topics(golden, log)
    log.write_to(ends[2])
    rebuild(log.path, tmp_path / "out", config)
    log.write_to(log.last)
    follower = open_follower(log, tmp_path / "out", config)
    catch_up(follower)
    follower.close()
    assert_as_rebuilt(log, tmp_path / "out", config)


def test_a_topic_that_comes_later_gets_batch_queues(golden: Golden, tmp_path: Path) -> None:
    log, config, ends = batch_log(golden, tmp_path / "store")
    log.write_to(0)
    follower = open_follower(log, tmp_path / "out", config)
    catch_up(follower)
    write_topics(golden, log)
    log.write_to(ends[1])
    catch_up(follower)
    follower.close()
    assert_as_rebuilt(log, tmp_path / "out", config)


def test_a_log_that_was_cut_and_written_anew(golden: Golden, tmp_path: Path) -> None:
    log, config, ends = batch_log(golden, tmp_path / "store")
    write_topics(golden, log)
    log.write_to(ends[2])
    follower = open_follower(log, tmp_path / "out", config)
    catch_up(follower)
    follower.sync()
    log.write_to(ends[1])
    follower.poll()
    catch_up(follower)
    follower.sync()
    assert_as_rebuilt(log, tmp_path / "out", config)
    log.write_to(log.last)
    catch_up(follower)
    follower.close()
    assert_as_rebuilt(log, tmp_path / "out", config)
