"""A finding with its repair is added in two source files, as docs/architecture.md explains."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

SOURCE = Path(__file__).parents[2] / "src" / "reput"
RECORD = """\
    WRITABLE_QUEUE_FILE = _Record(
        "writable_queue_file", Severity.WARNING, Remedy.REBUILD_INDEXES,
        "a ConsumeQueue file that every user may write",
        cost="its entries may be anybody's", repair=Repair.QUEUES,
    )  # fmt: skip

"""
NOTICED = """\
        if status.st_mode & 2:
            findings.append(Finding(Kind.WRITABLE_QUEUE_FILE, str(path), "every user may write it"))
"""
CHANGES = {
    "base/findings.py": ("    # IndexFiles\n", RECORD),
    "engine/check/checking/listings.py": ("        size = status.st_size\n", NOTICED),
}
"""By file: a line, and the text to insert before it."""


def test_a_new_finding_with_its_repair_changes_two_source_files(
    golden: Callable[[str], GoldenStore], tmp_path: Path
) -> None:
    copy = tmp_path / "copy" / "reput"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name, (line, text) in CHANGES.items():
        source = (copy / name).read_text()
        assert source.count(line) == 1
        (copy / name).write_text(source.replace(line, text + line))
    store = copy_store(golden("lmq").path, tmp_path / "store")
    queue = next((store / "consumequeue").glob("*/*/*"))
    queue.chmod(0o666)

    def run(*command: str) -> str:
        program = f"import sys; from reput.cli.main import main; sys.exit(main({[*command]!r}))"
        # Compiling the kernels of the copy would take longer than running them as Python on this small store.
        environment = os.environ | {"PYTHONPATH": str(copy.parent), "NUMBA_DISABLE_JIT": "1"}
        return subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True
        ).stdout

    assert run("check", "--quick", str(store)).splitlines()[:4] == [
        f"warning: writable_queue_file: {queue}: every user may write it",
        "    cost:         its entries may be anybody's",
        "    broker start: cuts the queue there if it is in one of its last three files; otherwise does not notice it",
        f"    repair:       reput repair {store}",
    ]
    plan = run("repair", "--plan", str(store))
    assert "rebuild  consumequeue/: " in plan
    assert "(writable_queue_file)" in plan
