"""A simulated store is valid, and each operation that is measured with it answers."""

from __future__ import annotations

from pathlib import Path

import pytest

import reput
from benchmarks.many_stores import Untimed
from tests.growth.simulated import OPERATIONS, Simulated, write


def _store(folder: Path) -> Path:
    return write(folder / "store", Simulated(6, 12, 2, 1 << 12))


@pytest.mark.every_case
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_on_a_simulated_store_answers(operation: str, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    # The operations assert what they return: no findings, no problems of a proof, the messages of the keys.
    OPERATIONS[operation]([_store(tmp_path)], tmp_path / "work", Untimed())


def test_a_simulated_store_has_the_messages_of_all_its_queues(tmp_path: Path) -> None:
    with reput.open_store(_store(tmp_path)) as store:
        assert len(store.list_queues()) == 12
        for number in range(12):
            (message,) = store.pull(f"T{number}", 0, 0).messages
            answer = store.query(f"T{number}", f"k{number}")
            assert answer.messages == (message,)
            assert answer.is_complete
