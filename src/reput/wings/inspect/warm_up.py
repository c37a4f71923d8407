"""Compile the kernels of statistics, look-ups and JSON lines, as `reput.engine.rebuild.warm_up` does for rebuilds."""

from __future__ import annotations

from functools import cache
from io import BytesIO

from reput.base import SerialRunner
from reput.engine.lookup import Keys, answer_lines, find
from reput.engine.messages import LineColumns
from reput.engine.rebuild import SMALL, rebuild_store, small_log
from reput.engine.stores import open_store
from reput.format.file_names import COMMIT_LOG_FOLDER, offset_file_name
from reput.format.host import Host
from reput.io import Scratch
from reput.wings.inspect.api import stats
from reput.wings.lakes import export


@cache
def warm_up() -> None:
    """Call the kernels with a store of three messages: measure the store, look up keys, export lines, put the lines."""
    lines = BytesIO()
    with Scratch.file(COMMIT_LOG_FOLDER, offset_file_name(0), small_log()) as folder:
        rebuild_store(SerialRunner(), folder, config=SMALL)
        stats(folder, config=SMALL)
        export(folder, lines, to="jsonl")
        with find(
            [folder], Keys.of([("t", "k"), ("t", "l")]), SerialRunner(), config=SMALL
        ) as found:
            for _ in answer_lines(found.answer, [0], "jsonl", end="\n"):
                pass
        columns = LineColumns(Host("127.0.0.1", 0))
        columns.begin(lines.getvalue(), 3)
        if columns.read(0).messages != 3:
            raise RuntimeError("put is broken: it does not read the lines of an export")
        with open_store(folder / "other", mode="rw", config=SMALL) as store:
            store.put_columns(columns.columns())
