"""`make demo` does what it says, and leaves nothing behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import CHECKOUT


@pytest.mark.slow
def test_the_demo_rebuilds_compares_and_finds(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, CHECKOUT / "examples" / "demo.py"],
        capture_output=True,
        timeout=600,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONIOENCODING": "utf-8"},
    )
    shown = ended.stdout.decode()
    assert (ended.returncode, ended.stderr.decode()) == (0, "")
    for line in (
        "Read 19,622 messages with 58,866 keys and wrote 35 files of 19 ConsumeQueues and 15 IndexFiles.",
        "consumequeue/      35     700,000   identical",
        "index/             15   1,260,600   identical",
        "8 messages in 5 topics. The goods arrived; the 631.26 were never booked.",
        "Sat 17 Oct 04:03:14  shipments  dispatched  by bike, trk47612002386",
        "Searched the CommitLog from 0 to 6,549,067: all of it could be read.",
    ):
        assert line in shown, shown
    assert shown.count("trk47612002386, signed for") == 1, "the delivery lies outside the window"
    assert [path.name for path in tmp_path.glob("reput-demo-*")] == []
