"""Measure the growth of operations, and print a table: `python -m tests.growth.measure [PART OF A NAME [SCALE]]`."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.growth.counts import MOST, Counts, count, exponents
from tests.growth.operations import DIMENSIONS, EXCEPTIONS, OPERATIONS

STEPS = (1, 2, 4)


class Growth(NamedTuple):
    """The growth of an operation's cost with one dimension: exponents by kind of cost, and the costs of each size."""

    operation: str
    dimension: str
    sizes: tuple[int, ...]
    exponents: dict[str, float]
    costs: tuple[Counts, ...]

    @property
    def worst(self) -> float:
        """Return the largest exponent, without those that have a reason."""
        excepted, _ = EXCEPTIONS.get((self.operation, self.dimension), ((), ""))
        return max((p for kind, p in self.exponents.items() if kind not in excepted), default=0)


def growth(operation: str, dimension: str, folder: Path, scale: int = 1) -> Growth:
    """Return how the cost of an operation grows with a dimension. `scale` divides the sizes of the stores."""
    run, (least, write) = OPERATIONS[operation].run, DIMENSIONS[dimension]
    sizes = tuple(max(least // scale, 1) * step for step in STEPS)
    costs = []
    # The first run loads modules and compiles kernels. It counts for none of the sizes.
    for size in (sizes[0], *sizes):
        total = Counts()
        for memory in (False, True):
            shutil.rmtree(folder, ignore_errors=True)
            stores = write(folder / "stores", size)
            (folder / "work").mkdir()
            cost = count(partial(run, stores, folder / "work"), memory=memory)
            if memory:
                total.memory = cost.memory
            else:
                total = cost
        costs.append(total)
    shutil.rmtree(folder)
    return Growth(operation, dimension, sizes, exponents(sizes, costs[1:]), tuple(costs[1:]))


def pairs() -> Iterator[tuple[str, str]]:
    """Yield each operation with each of its dimensions."""
    for name, operation in OPERATIONS.items():
        for dimension in operation.dimensions:
            yield name, dimension


def row(found: Growth) -> str:
    """Return a row of the table: the exponents, and the counts of the largest store."""
    kinds = ("lines", "calls", "moved", "sent", "memory")
    grown = " | ".join(f"{found.exponents[k]:.2f}" if k in found.exponents else "" for k in kinds)
    last = found.costs[-1]
    return (
        f"| {found.operation} | {found.dimension}, {found.sizes[-1]:,} | {grown} "
        f"| {last.lines:,} | {last.calls:,} | {last.memory / (1 << 20):.1f} MiB |"
    )


def main(part: str = "", scale: str = "1") -> int:
    """Print a row for each operation and dimension whose names contain `part`; return 1 if a cost grows too fast."""
    print("| operation | grows | lines | calls | bytes | sent | memory | lines | calls | memory |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    is_bad = False
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="growth-cache")
    for operation, dimension in pairs():
        if part not in f"{operation} {dimension}":
            continue
        with tempfile.TemporaryDirectory(prefix="growth") as folder:
            try:
                found = growth(operation, dimension, Path(folder, "store"), int(scale))
            except Exception as error:
                print(
                    f"| {operation} | {dimension} | {type(error).__name__}: {error} |", flush=True
                )
                is_bad = True
                continue
        is_bad = is_bad or found.worst > MOST
        print(row(found), "" if found.worst <= MOST else "**", flush=True)
    return int(is_bad)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
