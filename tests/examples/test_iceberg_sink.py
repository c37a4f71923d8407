"""The Iceberg sink of the examples: its command line, and its runs on the shop's store."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples import iceberg_sink
from reput.wings.lakes.command import export_command
from tests.docs.pages import CHECKOUT


def test_its_command_has_the_options_that_it_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = []

    def parse(arguments: list[str]) -> int:
        name, *others = arguments
        parsed.append(export_command.make_context(name, others).params)
        return 0

    monkeypatch.setattr(iceberg_sink, "reput", parse)
    iceberg_sink.export(tmp_path / "store", tmp_path / "lake")
    assert [(given["to"], given["incremental"]) for given in parsed] == [("iceberg", True)]


def test_the_iceberg_sink_runs_as_the_page_says(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "examples.iceberg_sink"],
        cwd=CHECKOUT, capture_output=True, timeout=600, check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    shown = ended.stdout.decode()
    assert (ended.returncode, ended.stderr.decode()) == (0, "")
    told = [line for line in shown.splitlines() if "snapshots" in line]
    assert told == [
        "1 snapshots, 6,217 messages, 6,217 of them different, 1,766 payments",
        "2 snapshots, 15,595 messages, 15,595 of them different, 4,257 payments",
        "3 snapshots, 19,622 messages, 19,622 of them different, 5,000 payments",
    ]
    assert [path.name for path in tmp_path.glob("reput-example-*")] == []
