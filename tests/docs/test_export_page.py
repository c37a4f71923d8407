"""The examples of docs/export.md run, and its statements about readers are true."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from reput.wings.lakes.request import PARTITIONS
from tests.docs.pages import CHECKOUT
from tests.golden.stores import GoldenStore
from tests.lakes.exporting import export

PAGE = (CHECKOUT / "docs" / "export.md").read_text(encoding="utf-8")
PAGES = sorted((CHECKOUT / "docs").glob("export*.md"))


@pytest.mark.slow
def test_the_python_example_runs(golden: Callable[[str], GoldenStore], tmp_path: Path) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "store").symlink_to(golden("orders").path)
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path, capture_output=True, timeout=600, check=False, env=dict(os.environ),
    )  # fmt: skip
    assert (ended.returncode, ended.stderr.decode()) == (0, "")
    rows, rejects, files = map(int, ended.stdout.split())
    assert (rows + rejects, files > 6) == (5270, True)


def test_duckdb_reads_the_folder_as_the_page_says(
    golden: Callable[[str], GoldenStore], tmp_path: Path
) -> None:
    store = golden("orders")
    export(store.path, tmp_path / "lake", partition_by=("topic", "day"))
    (pattern,) = re.findall(r"read_parquet\('/lake/messages/(.*?)'\)", PAGE)
    with duckdb.connect() as connection:
        found = connection.execute(
            f"SELECT topic, count(*) FROM read_parquet('{tmp_path}/lake/{pattern}') GROUP BY topic"
        ).fetchall()
    topics = [message.topic for message in store.messages]
    assert dict(found) == {topic: topics.count(topic) for topic in set(topics)}


def test_every_option_is_on_a_page_or_in_the_help() -> None:
    from reput.wings.lakes.command import export_command as command

    pages = [page.read_text(encoding="utf-8") for page in PAGES]
    told = "".join([*pages, command.help or ""])
    left_out = {"split_size", "as_json", "layout", "stores", "destination"}
    for parameter in command.params:
        assert parameter.name in left_out or any(
            name in told for name in (*parameter.opts, *parameter.secondary_opts)
        ), parameter.name
    assert all(f"`{name}`" in PAGE for name in PARTITIONS)
