"""The driver's work for a rebuild grows no faster than the store: the real driver, with tasks that take no time."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from benchmarks.many_stores import JOBS, stores_cost
from benchmarks.simulated import Cost, Size, driver_cost, plan_cost, slope

_STEPS = (1, 2, 4)


@pytest.fixture(scope="module")
def apart() -> Iterator[ProcessPoolExecutor]:
    """Yield a new process for measurements. In this one, memory of other tests' threads would count as the driver's."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        yield process


@pytest.mark.every_case
@pytest.mark.parametrize(
    "size_of",
    [
        lambda step: Size(70 * step, 100, 20_000_000),
        lambda step: Size(70, 500 * step, 20_000_000),
        lambda step: Size(70, 100, 8_000_000 // step),
    ],
    ids=["files", "queues", "index files"],
)
def test_the_driver_grows_no_faster_than_the_store(
    tmp_path: Path, apart: ProcessPoolExecutor, size_of: Callable[[int], Size]
) -> None:
    costs = list(apart.map(partial(_cost, tmp_path / "store"), map(size_of, _STEPS)))
    for column in ("calls", "memory", "sent", "received"):
        grown = slope(_STEPS, [getattr(cost, column) for cost in costs])
        assert grown <= 1.1, (column, costs)


def test_a_task_costs_the_driver_little(tmp_path: Path, apart: ProcessPoolExecutor) -> None:
    sizes = [Size(files, 100, 20_000_000) for files in (70, 280)]
    small, large = apart.map(partial(_cost, tmp_path / "store"), sizes)
    more: list[float] = [one - other for one, other in zip(large, small, strict=True)]
    tasks, _, calls, memory, sent, received = Cost(*more)  # type: ignore[arg-type]
    assert tasks > 500
    assert calls / tasks < 1000  # about 100 microseconds
    assert memory / tasks < 2048
    assert (sent + received) / tasks < 2048


@pytest.mark.every_case
@pytest.mark.parametrize(
    "size_of",
    [lambda step: (20 * step, 300), lambda step: (20, 300 * step)],
    ids=["splits", "queues"],
)
def test_the_plan_of_queues_grows_no_faster_than_the_store(
    tmp_path: Path, apart: ProcessPoolExecutor, size_of: Callable[[int], tuple[int, int]]
) -> None:
    measure = partial(plan_cost, tmp_path / "plan", counts=True)
    costs = list(apart.map(measure, *zip(*map(size_of, _STEPS), strict=True)))
    for column in ("calls", "memory", "sent"):
        grown = slope(_STEPS, [getattr(cost, column) for cost in costs])
        assert grown <= 1.1, (column, costs)


@pytest.mark.every_case
@pytest.mark.parametrize("job", JOBS)
def test_many_stores_cost_the_driver_little_each(
    tmp_path: Path, apart: ProcessPoolExecutor, job: str
) -> None:
    measure = partial(stores_cost, tmp_path / "stores", job=job, counts=True)
    costs = list(apart.map(measure, (20, 40, 60)))
    if _memory_grown(costs) > 1.1:
        # Threads open the stores. If many of them have a buffer at the same moment, the peak is high, so measure again.
        again = apart.map(measure, (20, 40, 60))
        costs = [min(pair, key=lambda cost: cost.memory) for pair in zip(costs, again, strict=True)]
    assert _memory_grown(costs) <= 1.1, costs
    for column in ("calls", "sent", "received"):
        grown = slope((1, 2, 3), [getattr(cost, column) for cost in costs])
        assert grown <= 1.1, (column, costs)
    last = costs[-1]
    assert last.calls / last.tasks < 4000  # about 400 microseconds
    assert (last.sent + last.received) / last.tasks < 2048


def _memory_grown(costs: list[Cost]) -> float:
    return slope((1, 2, 3), [cost.memory for cost in costs])


def _cost(folder: Path, size: Size) -> Cost:
    return driver_cost(folder, size, counts=True, split_size=256 << 20)


def test_a_slope_is_a_power() -> None:
    assert slope([1, 2, 4, 8], [3, 12, 48, 192]) == pytest.approx(2)
    assert slope([1, 2, 4, 8], [5, 10, 20, 40]) == pytest.approx(1)
