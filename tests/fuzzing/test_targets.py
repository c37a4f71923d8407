"""The fuzz targets themselves: seeds and a few mutations of them, without coverage guidance."""

import random
from importlib import import_module
from pathlib import Path

import pytest

from fuzz import TARGETS
from fuzz.allowed import allowed

_SEEDS = 3
_MUTATIONS = 4


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_finds_nothing_in_its_seeds_and_close_by(name: str, tmp_path: Path) -> None:
    target_class = import_module(f"fuzz.{name}").Target
    seeds = target_class.seeds()
    target = target_class(tmp_path)
    randomness = random.Random(name)
    for seed in randomness.sample(seeds, _SEEDS):
        assert len(seed) <= target_class.MAX_BYTES
        target.run(seed)
        for _ in range(_MUTATIONS):
            mutated = bytearray(seed)
            for _ in range(randomness.randint(1, 4)):
                mutated[randomness.randrange(len(mutated))] = randomness.randrange(256)
            with allowed():
                target.run(bytes(mutated))
