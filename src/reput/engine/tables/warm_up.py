"""Compile the kernels that read tables, once per machine.

The kernels are divided into the parts `scan`, `columns` and `others`. `python -m reput.engine.tables.warm_up PART…`
compiles some of these parts in a separate process.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

import numpy as np

from reput.base import usable_cpus
from reput.engine import messages, rebuild
from reput.engine.tables.log_paths import find_logs
from reput.format.commit_log import encode
from reput.format.file_names import COMMIT_LOG_FOLDER, offset_file_name
from reput.io import Scratch
from reput.kernels.compile_cache import compiling, has_compiled

_KERNELS = {
    "scan": ("places_scan.scan_places", "record_columns.gather_i32"),
    "columns": (
        "property_columns.split_properties", "property_columns.split_keys",
        "record_columns.bodies_match", "record_columns.put_message_ids",
    ),
    "others": ("property_columns.split_any_properties",),
}  # fmt: skip
"""The kernels are compiled in three parts. For each part, this dict has the kernels that are compiled last.

If the last kernels of a part are compiled, the whole part is compiled. Few logs need the part `others`.
"""

_SCANNED = {"store", "physical_offset", "size"}
"""Columns that can be read if only the kernels of the part `scan` are compiled."""

ALL_PARTS = ("scan", "columns")
_FEW_PROCESSORS = 2
_done: set[str] = set()
"""Parts of the kernels that this process has compiled, or has found in the cache.

The cache alone does not show which parts are compiled, because writing the cache may be impossible.
"""


def parts_of(columns: Iterable[str]) -> tuple[str, ...]:
    """Return the parts of the kernels (`ALL_PARTS`) that are needed to read these columns."""
    return ("scan",) if _SCANNED.issuperset(columns) else ("scan", "columns")


def compile_for(columns: Iterable[str]) -> None:
    """Compile the kernels that are missing to read these columns; for no columns, those to plan."""
    compile_now(parts_of(columns))


def start_compiling(columns: Iterable[str] | None = None) -> bool:
    """Start processes that compile the kernels that are missing to read these columns; None for any columns.

    Returns whether kernels are missing.
    """
    return compile_meanwhile(ALL_PARTS if columns is None else parts_of(columns))


def is_compiled(parts: Iterable[str] = ALL_PARTS) -> bool:
    """Return whether all kernels of these parts are compiled and cached."""
    return all(has_compiled(*_KERNELS[part]) for part in parts)


def compile_now(parts: Sequence[str]) -> None:
    """Compile the missing kernels, or wait for the process that is compiling them."""
    missing = [part for part in parts if part not in _done and not is_compiled([part])]
    # This process compiles the first part, and other processes the rest at the same time.
    if not _has_few_processors():
        compile_meanwhile(missing[1:])
    for part in missing:
        with compiling(part), _no_garbage_collection():
            if not is_compiled([part]):
                _WARM_UPS[part]()
    _done.update(parts)


def warm_up() -> None:
    """Compile all kernels that readers of any log may need."""
    compile_now(tuple(_KERNELS))


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Disable garbage collection during the `with` block.

    While kernels are compiled, garbage collection would take a fifth of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def compile_meanwhile(parts: Iterable[str] = ALL_PARTS) -> bool:
    """Start processes that compile the missing kernels; return False if there is nothing to compile.

    The kernels are divided into parts, and each part has its own process. With few processors, one process compiles
    all parts, because the calling process needs a processor as well. The processes end by themselves. If they cannot be
    started, the process that needs the kernels compiles them itself.
    """
    missing = [part for part in parts if not is_compiled([part])]
    if not missing:
        return False
    for group in [missing] if _has_few_processors() else [[part] for part in missing]:
        with suppress(OSError, ValueError):
            subprocess.Popen(
                [sys.executable, "-m", "reput.engine.tables.warm_up", *group], stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
    return True


def _has_few_processors() -> bool:
    return usable_cpus() <= _FEW_PROCESSORS


def _scan() -> None:
    from reput.engine.tables.plan import plan_reading
    from reput.engine.tables.read import RangeBatches

    with Scratch.file(COMMIT_LOG_FOLDER, offset_file_name(0), rebuild.small_log()) as folder:
        for task in plan_reading(find_logs([str(folder)])).tasks:
            list(RangeBatches(task.part, ["size"]))


def _columns() -> None:
    _decode(b"UNIQ_KEY\x01k")


def _others() -> None:
    _decode(b"a\x01b\x02a\x01c")


def _decode(properties: bytes) -> None:
    message = replace(rebuild.small_message(), properties_bytes=properties)
    record = encode(message)
    records = np.frombuffer(bytearray(record * 2), np.uint8)
    messages.decode_batch(records, np.array([0, len(record)], np.int64))


_WARM_UPS = {"scan": _scan, "columns": _columns, "others": _others}

if __name__ == "__main__":
    compile_now(sys.argv[1:])
