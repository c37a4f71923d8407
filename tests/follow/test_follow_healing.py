"""Indexes changed while no process followed the log: the next start repairs them."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from reput.engine.rebuild.follow.state import RECOVERY_POINT_FILE
from tests.follow.following import (
    CONFIG,
    ENDS,
    MADE,
    GrowingLog,
    catch_up,
    closed,
    no_note,
    open_follower,
    resumed,
)

pytestmark = pytest.mark.usefixtures("without_waiting")


def overwritten(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)
    later = path.stat().st_mtime_ns + 1_000_000_000
    os.utime(path, ns=(later, later))


def nonsense_noted(output: Path) -> None:
    (output / RECOVERY_POINT_FILE).write_text('{"form": 1, "end": [], "lock": 0}')


def garbled_note(output: Path) -> None:
    overwritten(output / RECOVERY_POINT_FILE, 20, b"\xff\xff\xff")


def foreign_note(output: Path) -> None:
    other = output.parent / "other"
    log = GrowingLog(other / "store", MADE.files())
    log.write_to(MADE.offsets[500])
    follower = open_follower(log, other / "out", CONFIG)
    catch_up(follower)
    follower.close()
    shutil.copy(other / "out" / RECOVERY_POINT_FILE, output / RECOVERY_POINT_FILE)
    shutil.rmtree(other)


def a_queue_file_less(output: Path) -> None:
    sorted((output / "consumequeue" / "T0" / "2").iterdir())[1].unlink()


def the_last_queue_file_less(output: Path) -> None:
    sorted((output / "consumequeue" / "T0" / "2").iterdir())[-1].unlink()


def a_queue_less(output: Path) -> None:
    shutil.rmtree(output / "consumequeue" / "T1" / "1")


def a_queue_more(output: Path) -> None:
    shutil.copytree(output / "consumequeue" / "T1" / "1", output / "consumequeue" / "T1" / "7")


def other_tags_in_a_full_queue_file(output: Path) -> None:
    overwritten(sorted((output / "consumequeue" / "T0" / "2").iterdir())[0], 19, b"\x07")


def an_index_file_less(output: Path) -> None:
    sorted((output / "index").iterdir())[1].unlink()


def the_last_index_file_less(output: Path) -> None:
    sorted((output / "index").iterdir())[-1].unlink()


def other_items_in_a_full_index_file(output: Path) -> None:
    overwritten(sorted((output / "index").iterdir())[2], 200, b"\x01\x02\x03")


def other_items_in_the_last_index_file(output: Path) -> None:
    path = sorted((output / "index").iterdir())[-1]
    overwritten(path, 40 + 4 * CONFIG.hash_slots + 20 + 2, b"\x55")


HARMS = (
    no_note, nonsense_noted, garbled_note, foreign_note, a_queue_file_less,
    the_last_queue_file_less, a_queue_less, a_queue_more, other_tags_in_a_full_queue_file,
    an_index_file_less, the_last_index_file_less, other_items_in_a_full_index_file,
    other_items_in_the_last_index_file,
)  # fmt: skip


@pytest.mark.parametrize("ended", ENDS)
@pytest.mark.parametrize("harm", HARMS)
def test_whatever_was_done_to_the_indexes_is_healed(
    tmp_path: Path, harm: Callable[[Path], None], ended: str
) -> None:
    log = ENDS[ended](tmp_path)
    harm(tmp_path / "out")
    log.write_to(MADE.offsets[700])
    compared_from = resumed(log, tmp_path / "out", CONFIG).report.compared_from
    assert compared_from == 0 or (ended == "killed" and harm is the_last_queue_file_less)


def other_tags_in_the_last_queue_file(output: Path) -> None:
    overwritten(sorted((output / "consumequeue" / "T0" / "2").iterdir())[-1], 19, b"\x07")


def other_checkpoint(output: Path) -> None:
    overwritten(output / "checkpoint", 3, b"\x07")


def nothing_but_a_time(output: Path) -> None:
    os.utime(sorted((output / "index").iterdir())[-1])


@pytest.mark.parametrize(
    "harm", [other_tags_in_the_last_queue_file, other_checkpoint, nothing_but_a_time]
)
def test_any_change_since_an_end_in_order_is_noticed(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    log = closed(tmp_path)
    harm(tmp_path / "out")
    assert resumed(log, tmp_path / "out", CONFIG).report.compared_from == 0
