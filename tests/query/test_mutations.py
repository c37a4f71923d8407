"""After any single change in a store, each answer that misses a message of the log is marked incomplete."""

from pathlib import Path
from random import Random

import pytest

from tests.query.mutations import Mutations

pytestmark = pytest.mark.usefixtures("own_cache")


def misses(path: Path, *, is_proved: bool, changes: int, seed: int) -> Mutations:
    made = Mutations(path / "store", is_proved, Random(seed))
    made.build()
    made.run(changes, in_bulk_every=20)
    assert made.asked >= 2 * changes
    return made


def test_no_change_to_a_proved_store_hides_a_message(tmp_path: Path) -> None:
    assert misses(tmp_path, is_proved=True, changes=200, seed=1).missed == []


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_none_of_ten_thousand_changes_to_a_proved_store_hides_a_message(tmp_path: Path) -> None:
    assert misses(tmp_path, is_proved=True, changes=10_000, seed=2).missed == []
