"""`reput rebuild --follow` of a rebuilt store: it waits, reports and ends without Spark."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.follow.following import CONFIG, FILE_BYTES, MADE, GrowingLog, catch_up, open_follower

_TIMEOUT_S = 600


def start(store: Path, output: Path, *options: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "reput", "rebuild", str(store), "--output", str(output)]
    return subprocess.Popen(
        [*command, "--follow", "--master", "none, for it is not asked", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_wait_for_a_first_message_ends_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "store").mkdir()
    follower = start(tmp_path / "store", tmp_path / "live")
    assert follower.stderr is not None
    waits = f"reput: {tmp_path}/store: no CommitLog yet; waiting for its first message\n"
    assert follower.stderr.readline() == waits
    follower.send_signal(number)
    printed, errors = follower.communicate(timeout=_TIMEOUT_S)
    assert (follower.returncode, errors) == (0, "")
    assert printed == "No message arrived, so nothing was indexed.\n"


def test_a_path_that_is_not_a_folder_is_not_waited_for(tmp_path: Path) -> None:
    follower = start(tmp_path / "missing", tmp_path / "live")
    printed, errors = follower.communicate(timeout=_TIMEOUT_S)
    assert (follower.returncode, printed) == (2, "")
    assert "not a RocketMQ store" in errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_messages_that_expired_before_they_were_indexed_are_damage(
    tmp_path: Path, number: signal.Signals
) -> None:
    log = GrowingLog(tmp_path / "store", MADE.files())
    log.write_to(MADE.offsets[100])
    follower = open_follower(log, tmp_path / "live", CONFIG)
    catch_up(follower)
    follower.close()
    log.write_to(log.last)
    for path in sorted((log.path / "commitlog").iterdir())[:5]:
        path.unlink()
    running = start(log.path, tmp_path / "live", "--format", "json")
    assert running.stderr is not None
    assert "has every message before" in running.stderr.readline()
    running.send_signal(number)
    printed, errors = running.communicate(timeout=_TIMEOUT_S)
    lost = 5 * FILE_BYTES - MADE.offsets[100]
    assert running.returncode == 3
    offset = f"physical offset {MADE.offsets[100]}"
    assert f"{offset}: {lost} bytes lost: expired before they were indexed" in errors
    report = json.loads(printed)
    assert report["log_begin"] == 5 * FILE_BYTES
    # The signal may arrive before the first step.
    assert 5 * FILE_BYTES <= report["position"] <= log.last
    assert [damage["length"] for damage in report["damage"]] == [lost]
