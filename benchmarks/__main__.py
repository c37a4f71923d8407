"""`python -m benchmarks [--folder DIR] [--gigabytes N] [--runs N]`: measure, print a table, write JSON."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from benchmarks import kernels, machine, opening, put, query, rebuild
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
    parser.add_argument("--runs", type=int, default=3, help="rebuilds to measure; the best counts")
    parser.add_argument("--keep", action="store_true", help="leave the store for the next run")
    options = parser.parse_args()
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
        figures = _measure(folder, int(options.gigabytes * 1e9), options.runs)
    finally:
        if not options.keep:
            shutil.rmtree(folder)
    show(figures)
    print(f"written to {save(figures)}")
    return 0


def _measure(folder: Path, log_bytes: int, runs: int) -> list[Figure]:
    store, output = folder / f"store-{log_bytes}", folder / "rebuilt"
    if not store.exists():
        print(f"benchmarks: writing a CommitLog of {log_bytes / 1e9:.1f} GB", file=sys.stderr)
        write_store(store, log_bytes)
    figures = list(machine.measure(folder))
    print("benchmarks: kernels", file=sys.stderr)
    figures += kernels.measure(store)
    print(f"benchmarks: rebuild, {runs} times", file=sys.stderr)
    figures += rebuild.measure(store, output, runs)
    messages = next(
        int(figure.value * 1e6 + 0.5) for figure in figures if figure.name == "messages"
    )
    print("benchmarks: query", file=sys.stderr)
    figures += query.measure(store, output, messages)
    print("benchmarks: opening", file=sys.stderr)
    figures += opening.measure(store, output, folder)
    print("benchmarks: put", file=sys.stderr)
    figures += put.measure(folder)
    return figures


if __name__ == "__main__":
    sys.exit(main())
