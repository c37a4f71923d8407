"""`python -m benchmarks [--folder DIR] [--gigabytes N] [--runs N] [PART…]`: measure, print a table, write JSON."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from benchmarks import (
    absent,
    archive,
    archive_speed,
    arrow,
    doctor,
    export,
    growth,
    json_lines,
    kernels,
    levels,
    lookup,
    machine,
    notebook,
    opening,
    partitions,
    proof,
    put,
    query,
    rebuild,
    rocksdb,
    runners,
    scale,
    serve,
    table,
    topics,
    windows,
)
from benchmarks.generate import write_store
from benchmarks.result import Figure, save, show


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(".bench"),
        help="where the store is made; deleted afterwards",
    )
    parser.add_argument("--gigabytes", type=float, default=10.26, help="size of the CommitLog")
    parser.add_argument("--runs", type=int, default=3, help="number of rebuilds; the best counts")
    parser.add_argument("--keep", action="store_true", help="leave the store for the next run")
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"only these of {', '.join(_PARTS)}"
    )
    options = parser.parse_args()
    if unknown := set(options.parts) - _PARTS.keys():
        parser.error(f"no part has the name {min(unknown)!r}; the parts are {', '.join(_PARTS)}")
    needed = 1.5e9 * options.gigabytes
    folder: Path = options.folder
    folder.mkdir(exist_ok=True)
    if shutil.disk_usage(folder).free < needed:
        print(
            f"benchmarks: {folder} needs {needed / 1e9:.0f} GB of free disk; choose another --folder",
            file=sys.stderr,
        )
        return 2
    try:
        figures = _measure(folder, int(options.gigabytes * 1e9), options)
    finally:
        if not options.keep:
            shutil.rmtree(folder)
    show(figures)
    print(f"written to {save(figures)}")
    return 0


def _measure(folder: Path, log_bytes: int, options: argparse.Namespace) -> list[Figure]:
    store = folder / f"store-{log_bytes}"
    # The part `runners` creates its own stores, so it does not need this one.
    if not store.exists() and set(options.parts) != {"runners"}:
        print(f"benchmarks: writing a CommitLog of {log_bytes / 1e9:.1f} GB", file=sys.stderr)
        write_store(store, log_bytes)
    figures: list[Figure] = []
    for name, measure in _PARTS.items():
        if name in (options.parts or _PARTS):
            print(f"benchmarks: {name}", file=sys.stderr)
            # Write the files of the previous part to the disk now, so that they do not slow the next measurement.
            os.sync()
            figures += measure(folder, store, options.runs)
    return figures


def _measure_rebuild(folder: Path, store: Path, runs: int) -> Iterator[Figure]:
    """Measure rebuilds, and all operations that need rebuilt indexes."""
    output = folder / "rebuilt"
    figures = list(rebuild.measure(store, output, runs))
    yield from figures
    messages = next(int(found.value * 1e6 + 0.5) for found in figures if found.name == "messages")
    yield from query.measure(store, output, messages)
    yield from proof.measure(store, output, messages)
    yield from table.measure(store, output)
    yield from lookup.measure(store, output, messages, runs)
    # This part moves the indexes away, so it must be the last.
    yield from opening.measure(store, output, folder)


def _measure_serve(folder: Path, store: Path, runs: int) -> Iterator[Figure]:
    """Measure only the server, with indexes rebuilt for it."""
    output = folder / "rebuilt"
    figures = list(rebuild.measure(store, output, 1))
    messages = next(int(found.value * 1e6 + 0.5) for found in figures if found.name == "messages")
    yield from serve.measure(folder, store, output, messages)


_PARTS: dict[str, Callable[[Path, Path, int], Iterable[Figure]]] = {
    "machine": lambda folder, store, runs: machine.measure(folder),
    "kernels": lambda folder, store, runs: kernels.measure(store),
    "levels": lambda folder, store, runs: levels.measure(folder),
    "arrow": lambda folder, store, runs: arrow.measure(store, runs),
    "rebuild": _measure_rebuild,
    "serve": _measure_serve,
    "doctor": doctor.measure,
    "export": lambda folder, store, runs: export.measure(store),
    "partitions": lambda folder, store, runs: partitions.measure(folder),
    "scale": lambda folder, store, runs: scale.measure(folder, store),
    "growth": lambda folder, store, runs: growth.measure(folder, store),
    "notebook": lambda folder, store, runs: notebook.measure(folder),
    "put": lambda folder, store, runs: put.measure(folder),
    "json": lambda folder, store, runs: json_lines.measure(folder),
    "rocksdb": lambda folder, store, runs: rocksdb.measure(folder),
    "runners": lambda folder, store, runs: runners.measure(folder, runs),
    "windows": lambda folder, store, runs: windows.measure(folder),
    "absent": lambda folder, store, runs: absent.measure(folder),
    "topics": lambda folder, store, runs: topics.measure(folder),
    "archive": lambda folder, store, runs: archive.measure(folder),
    "archive-speed": lambda folder, store, runs: archive_speed.measure(folder),
}

if __name__ == "__main__":
    sys.exit(main())
