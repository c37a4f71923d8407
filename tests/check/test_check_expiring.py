"""Files that a store's owner expires at any moment of a check are not damage."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree

import pytest

from reput.base.findings import Kind
from reput.engine.check.run import check_store
from reput.format.index_file import HEADER_BYTES, decode_header
from reput.io.lock import locked
from reput.io.reader import FileReader
from tests.check.test_check_mutations import CONFIG, valid_store
from tests.slow import IS_THOROUGH

# Let files expire before each of the first opened files, then only before every ninth one.
_EACH, _STEP = 6, 9


def expire(store: Path) -> None:
    """Delete the oldest files of the log, and files of queues and index that only point into them, as a broker does."""
    *oldest, kept, _ = sorted((store / "commitlog").iterdir())
    for file in oldest:
        file.unlink()
    begin = int(kept.name)
    for folder in (store / "consumequeue").glob("*/*"):
        for file in sorted(folder.iterdir())[:-1]:
            last = file.read_bytes()[-20:]
            if int.from_bytes(last[:8], "big") < begin:
                file.unlink()
    for file in sorted((store / "index").iterdir())[:-1]:
        if decode_header(file.read_bytes()[:HEADER_BYTES]).end_physical_offset < begin:
            file.unlink()


@contextmanager
def expiring_before_open(store: Path, number: int) -> Iterator[list[str]]:
    """Record the opened files, in order; before the `number`-th, files expire."""
    opened: list[str] = []
    as_it_is = FileReader.__init__

    def counted(self: FileReader, path: str) -> None:
        if len(opened) == number:
            expire(store)
        opened.append(str(path))
        as_it_is(self, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileReader, "__init__", counted)
        yield opened


def kinds(store: Path, *, quick: bool) -> set[Kind]:
    return {finding.kind for finding in check_store(store, config=CONFIG, quick=quick)}


@pytest.mark.parametrize("quick", [False, True])
def test_files_may_expire_before_any_of_them_is_opened(tmp_path: Path, quick: bool) -> None:
    whole = valid_store(tmp_path / "whole")
    for name in ("lock", "abort"):
        (whole / name).touch()
    number = 0
    while True:
        store = copytree(whole, tmp_path / str(number))
        with locked(store / "lock", "a broker"), expiring_before_open(store, number) as opened:
            assert kinds(store, quick=quick) == {Kind.STORE_IN_USE}, opened[number]
        if len(opened) <= number:
            break
        number += 1 if number < _EACH or IS_THOROUGH else _STEP
    assert number > 10


def test_without_an_owner_a_file_that_is_gone_is_not_passed_over(tmp_path: Path) -> None:
    store = valid_store(tmp_path / "store")
    log = sorted((store / "commitlog").iterdir())
    log[1].unlink()
    assert Kind.MISSING_LOG_FILE in kinds(store, quick=False)
