"""Files that this user may not read: their store is not read, never damaged, and other stores are answered."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import reput
from reput.engine.stores import StoreState, over_stores
from reput.io.anchors import open_anchored
from reput.wings.fleet.survey import fleet_lines, survey
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
KEY = "order-103921"
FILES = ["commitlog", "consumequeue", "index"]


@pytest.fixture
def folder(golden: Golden, tmp_path: Path) -> Path:
    """Two copies of a store: `open` and `closed`."""
    for name in ("open", "closed"):
        copy_store(golden("orders").path, tmp_path / name)
    return tmp_path


def refuse(monkeypatch: pytest.MonkeyPatch, place: Path, *, folders: bool) -> None:
    """Refuse to open files below a place, or to list it, as the system does for a user without permission.

    Tests may run as root, who may read everything.
    """

    def is_refused(path: object) -> bool:
        return str(path).startswith(str(place))

    def refusing(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(path: Any, *args: Any, **options: Any) -> Any:
            if is_refused(path):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return call(path, *args, **options)

        return run

    if folders:
        monkeypatch.setattr(os, "scandir", refusing(os.scandir))
    else:
        monkeypatch.setattr("reput.io.reader.open_anchored", refusing(open_anchored))


@pytest.mark.every_case
@pytest.mark.parametrize("folders", [False, True], ids=["files", "folder"])
@pytest.mark.parametrize("part", FILES)
@pytest.mark.parametrize("quick", [True, False])
def test_check_does_not_take_a_refusal_for_damage(
    folder: Path, monkeypatch: pytest.MonkeyPatch, part: str, folders: bool, quick: bool
) -> None:
    refuse(monkeypatch, folder / "closed" / part, folders=folders)
    paths = [str(folder / name) for name in ("open", "closed")]
    found = over_stores(reput.check, paths, quick=quick, runner="serial")
    assert [one.state for one in found] == [StoreState.OK, StoreState.NOT_READ]
    assert "Permission denied" in str(found.answers[1].error)
    assert (found.is_complete, found.severity) == (False, None)


@pytest.mark.every_case
@pytest.mark.parametrize("folders", [False, True], ids=["files", "folder"])
@pytest.mark.parametrize("part", FILES)
def test_a_query_and_a_survey_name_the_store_that_was_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, part: str, folders: bool
) -> None:
    refuse(monkeypatch, folder / "closed" / part, folders=folders)
    paths = [str(folder / name) for name in ("open", "closed")]
    # Without a topic, a search by key lists the topics, but opens no ConsumeQueue.
    needs_part = part != "consumequeue" or folders
    answer = reput.find(paths, KEY)
    assert {one.store for one in answer} == {paths[0], *([] if needs_part else paths[1:])}
    assert answer.is_complete is not needs_part
    surveyed = over_stores(survey, paths, runner="serial")
    assert [one.state for one in surveyed] == [StoreState.OK, StoreState.NOT_READ]


def test_a_lag_that_cannot_be_computed_is_not_shown_as_none(folder: Path) -> None:
    (folder / "closed" / "config").mkdir(exist_ok=True)
    (folder / "closed" / "config" / "consumerOffset.json").write_text("{ no json")
    lines = list(fleet_lines(over_stores(survey, [str(folder / "closed")], runner="serial")))
    assert "  ?  " in lines[1]
    assert any("lag, oldest unknown: " in line for line in lines)


def test_offsets_that_may_not_be_read_refuse_the_survey(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "closed" / "config").mkdir(exist_ok=True)
    file = folder / "closed" / "config" / "consumerOffset.json"
    file.write_text('{"offsetTable": {}}')
    refuse(monkeypatch, file, folders=False)
    (answer,) = over_stores(survey, [str(folder / "closed")], runner="serial")
    assert answer.state is StoreState.NOT_READ
