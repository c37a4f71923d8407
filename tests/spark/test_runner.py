import pytest

from reput.spark.runner import _group


@pytest.mark.parametrize(
    ("weights", "share", "sizes"),
    [
        ([64] * 153, 153 * 64 / 8, [20, 19, 19, 19, 19, 19, 19, 19]),
        ([20, 20, 14, 7, 7, 7, 6], 81 / 8, [1, 1, 1, 1, 1, 1, 1]),
        ([1, 1, 1], 100, [3]),
        ([1, 1, 1], 0.1, [1, 1, 1]),
    ],
)
def test_tasks_are_grouped_with_their_neighbours_into_partitions_of_equal_weight(
    weights: list[int], share: float, sizes: list[int]
) -> None:
    groups = _group(list(range(len(weights))), weights, share)
    assert [len(tasks) for tasks, _ in groups] == sizes
    assert [task for tasks, _ in groups for task in tasks] == list(range(len(weights)))
    assert [weight for _, weight in groups] == [
        sum(weights[task] for task in tasks) for tasks, _ in groups
    ]
