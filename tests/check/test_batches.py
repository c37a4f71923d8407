"""Tasks of a check that run together: findings appear early, and each run is worth its overhead."""

from reput.engine.check.checking.full_check import batches

GB = 1 << 30


def spans(weights: list[int], parallelism: int) -> list[tuple[int, int]]:
    return [(part.start, part.stop) for part in batches(weights, parallelism)]


def test_in_one_process_each_task_reports_its_findings_at_once() -> None:
    assert spans([GB, 1, 1], 1) == [(0, 1), (1, 2), (2, 3)]


def test_large_tasks_run_a_few_at_a_time() -> None:
    assert spans([GB] * 20, 2) == [(0, 8), (8, 16), (16, 20)]


def test_small_tasks_run_together_up_to_a_limit() -> None:
    assert spans([6_000_000] * 100, 2) == [(0, 100)]
    assert spans([1] * 600, 2) == [(0, 256), (256, 512), (512, 600)]
    assert spans([], 2) == []
