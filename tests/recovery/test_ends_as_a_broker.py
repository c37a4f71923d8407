"""Where 5.3.3 ended the log of damaged stores: reput's recovery ends it at the same byte.

The table of 60 cases is not shipped: it is looked for in ``../shared/recovery5.txt`` beside the checkout.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from reput.engine.writer.store_writer import StoreWriter, WriterSettings
from reput.format.commit_log import read_size_and_magic
from tests.golden.stores import CHECKOUT, GoldenStore
from tests.writer.golden_puts import store_config

Golden = Callable[[str], GoldenStore]
TABLE = CHECKOUT.parent / "shared" / "recovery5.txt"
PAGE_BYTES = 4096


class Case(NamedTuple):
    store: str
    is_clean: bool
    damages: tuple[str, ...]
    log_end: int


def read_table() -> list[Case]:
    if not TABLE.exists():
        return []
    rows = (
        line.split("\t") for line in TABLE.read_text().splitlines() if line[:1] not in ("", "#")
    )
    return [Case(row[0], row[1] == "clean", tuple(row[2].split()), int(row[3])) for row in rows]


# The numbers of cases that are not slow: a lost last file, a wrong CRC before the files that a clean start reads, a
# database after a crash, a torn record with a CRC.
ALWAYS = frozenset({2, 5, 15, 21, 22})


def cases() -> Sequence[object]:
    found = [
        pytest.param(case, marks=[pytest.mark.slow] * (number not in ALWAYS), id=f"{number}-{case.store}")
        for number, case in enumerate(read_table())
    ]  # fmt: skip
    return found or [pytest.param(None, marks=pytest.mark.skip(f"{TABLE} is not here"), id="none")]


@pytest.mark.every_case
@pytest.mark.parametrize("case", cases())
def test_the_log_ends_where_a_broker_ends_it(golden: Golden, tmp_path: Path, case: Case) -> None:
    store, damaged = golden(case.store), tmp_path / "store"
    shutil.copytree(store.path, damaged)
    if not case.is_clean:
        (damaged / "abort").write_bytes(b"1")
    for damage in case.damages:
        inflict(damaged / "commitlog", store.path / "commitlog", damage)
    writer = StoreWriter(damaged, store_config(store), WriterSettings(as_broker=True))
    assert writer.recovery.log_end == case.log_end
    writer.close()


def inflict(log: Path, original: Path, damage: str) -> None:
    """Apply one damage, written as KIND_WHICH:FILE:AT. Records are located in the original log, before any damage."""
    kind, name, place = damage.split(":")
    path, at = log / name, int(place)
    if kind.startswith("del"):
        path.unlink()
    elif path.exists():
        data = bytearray(path.read_bytes())
        if kind.startswith("zero"):
            data[at:] = bytes(len(data) - at)
        elif kind.startswith("flip"):
            data[at] ^= 1 << at % 8
        elif kind.startswith("page"):
            page = at - at % PAGE_BYTES
            data[page : page + PAGE_BYTES] = bytes(PAGE_BYTES)
        else:
            place_of, bit = {"magic": (4, 0x10), "size": (2, 0x01)}[kind.split("_")[0]]
            data[record_at((original / name).read_bytes(), at) + place_of] ^= bit
        path.write_bytes(data)


def record_at(data: bytes, at: int) -> int:
    position = 0
    while (end := position + read_size_and_magic(data, position)[0]) <= at:
        position = end
    return position
