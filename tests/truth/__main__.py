"""Run scenes by their seeds, and print the violations of each."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.truth.harness import Harness, Result
from tests.truth.sampling import run_many


def main() -> int:
    """Run scenes. Return 1 if there was a violation."""
    parser = argparse.ArgumentParser(prog="python -m tests.truth", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first scene")
    parser.add_argument("--scenes", type=int, default=1, help="number of scenes")
    parser.add_argument("--processes", type=int, default=0, help="number of processes; all paths")
    parser.add_argument("--path", default="", help="only paths whose names contain this")
    parser.add_argument("--store", help="this store in place of the seed's")
    parser.add_argument("--state", help="this state in place of the seed's")
    parser.add_argument(
        "--damage", help="these damages, separated by commas, in place of the seed's"
    )
    parser.add_argument("--short", action="store_true", help="one line per violation")
    parser.add_argument("--times", action="store_true", help="processor time of each path")
    given = parser.parse_args()
    seeds = range(given.seed, given.seed + given.scenes)
    every = Result()

    def show(result: Result) -> None:
        for one in result.violations:
            print(one.line() if given.short else one, flush=True)
        every.add(result)

    with tempfile.TemporaryDirectory(prefix="reput-truth-") as folder:
        if given.processes:
            run_many(Path(folder), seeds, given.processes, show)
        else:
            harness = Harness(Path(folder), given.store, given.state, given.damage)
            for seed in seeds:
                show(harness.run(seed, lambda path: given.path in str(path)))
    if given.times:
        for name, spent_ns in every.processor_ns.most_common():
            print(f"{spent_ns / 1e9:8.2f} s {name}")
    print(every.summary())
    return bool(every.violations)


if __name__ == "__main__":
    raise SystemExit(main())
