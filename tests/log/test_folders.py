"""CommitLogs whose files lie in several folders."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.base.config import StoreConfig
from reput.cli.main import DAMAGED, WRONG_USE
from reput.core.log.sources import StoreLog, log_folders
from reput.errors import StoreNotFoundError
from reput.io.storage import LOCAL
from tests.cli.running import reput as run
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]


def test_folders_in_the_store_are_found(golden: Golden) -> None:
    store = golden("five_multipath").path
    folders = log_folders(str(store), LOCAL)
    assert [Path(folder).name for folder in folders] == ["commitlog1", "commitlog2"]
    files = StoreLog(store).list().files
    assert [file.start for file in files] == [0, 65536, 131072]
    plain = golden("five_ext").path
    assert log_folders(str(plain), LOCAL) == (str(plain / "commitlog"),)


def test_folders_elsewhere_are_read_where_the_settings_name_them(
    golden: Golden, tmp_path: Path
) -> None:
    source = golden("five_multipath")
    store = copy_store(source.path, tmp_path / "store")
    named = [shutil.move(store / name, tmp_path / name) for name in ("commitlog1", "commitlog2")]
    with pytest.raises(StoreNotFoundError):
        reput.open_store(store)
    settings = tmp_path / "broker.conf"
    settings.write_text(
        f"storePathCommitLog = {named[0]}\nreadOnlyCommitLogStorePaths={named[1]}\n"
    )
    assert StoreConfig.from_broker_config(settings).log_folders == tuple(map(str, named))
    with reput.open_store(store, broker_config=settings) as opened:
        for row in source.messages:
            assert opened.get(row.physical_offset).queue_offset == row.queue_offset
    assert StoreConfig.from_broker_settings({"storePathCommitLog": "/a"}).log_folders == ()


def test_new_files_are_noticed_in_every_folder(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("five_multipath").path, tmp_path / "store")
    last = max((store / "commitlog1").iterdir())
    hidden = last.rename(tmp_path / last.name)
    with reput.open_store(store) as opened:
        before = opened.commit_log.files_end
        shutil.copy(hidden, last)
        opened.commit_log.refresh()
        assert opened.commit_log.files_end > before


def test_commands_read_such_a_store(golden: Golden, tmp_path: Path) -> None:
    store = golden("five_multipath").path
    for sound in (store, golden("five_ext").path):
        assert "damage:" not in run("check", str(sound)).out
    assert "3 files" in run("inspect", str(store)).out
    copy = copy_store(store, tmp_path / "store")
    next((copy / "commitlog2").iterdir()).unlink()
    checked = run("check", str(copy))
    assert checked.code == DAMAGED
    assert "missing_log_file" in checked.out


def test_a_lost_extension_unit_is_a_wrong_tags_code(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("five_ext").path, tmp_path / "store")
    lost = next((store / "consumequeue_ext" / "order-events").glob("*/*"))
    lost.write_bytes(bytes(lost.stat().st_size))
    checked = run("check", str(store))
    assert checked.code == DAMAGED
    assert f"wrong_queue_entry: {store}/consumequeue/order-events/{lost.parent.name}" in checked.out


@pytest.mark.every_case
@pytest.mark.parametrize("inside", [("commitlog1", "commitlog2"), ("commitlog2",), ("commitlog1",)])
def test_folders_given_may_lie_in_the_store(
    golden: Golden, tmp_path: Path, inside: tuple[str, ...]
) -> None:
    store = copy_store(golden("five_multipath").path, tmp_path / "store")
    folders = [store / name for name in inside]
    for name in {"commitlog1", "commitlog2"} - set(inside):
        folders.append(Path(shutil.move(store / name, tmp_path / name)))
    (tmp_path / "link").symlink_to(folders.pop())
    given = ",".join(map(str, (store, *folders, tmp_path / "link")))
    checked = run("check", given)
    assert checked.code == run("check", golden("five_multipath").path).code
    assert "overlaps" not in checked.err + checked.out
    stats = run("stats", given).lines[1:]
    assert stats[:3] == run("stats", golden("five_multipath").path).lines[1:4]


@pytest.mark.slow
def test_folders_elsewhere_are_given_with_the_store(golden: Golden, tmp_path: Path) -> None:
    source = golden("five_multipath")
    store = copy_store(source.path, tmp_path / "store")
    logs = [shutil.move(store / name, tmp_path / name) for name in ("commitlog1", "commitlog2")]
    given = ",".join(map(str, (store, *logs)))
    before = sorted(path for path in tmp_path.rglob("*"))
    for command in (("check",), ("stats",), ("tail", "--lines", "all", "--format", "jsonl")):
        here, there = (
            run(command[0], source.path, *command[1:]),
            run(command[0], given, *command[1:]),
        )
        assert there.code == here.code
        assert len(there.lines) == len(here.lines)
    message = source.messages[7]
    found = run(
        "query", given, "--topic", message.topic, "--key", message.uniq_key, "--format", "jsonl"
    )
    assert f'"physical_offset":{message.physical_offset}' in found.out.replace(" ", "")
    assert run("rebuild", given).code == WRONG_USE
    assert sorted(path for path in tmp_path.rglob("*")) == before
    sizes = [("--hash-slots", source.hash_slots), ("--index-items", source.index_items)]
    options = [one for pair in sizes for one in pair]
    output = tmp_path / "output"
    assert run("rebuild", given, "--output", output, *options).code == 0
    for path in (source.path / "consumequeue").rglob("0*"):
        if path.is_file():
            made = output / path.relative_to(source.path)
            assert made.read_bytes() == path.read_bytes()
    missing = run("check", f"{store},{tmp_path}/nowhere")
    assert "nowhere: no such directory" in missing.err
    with_comma = tmp_path / "a,b"
    with_comma.symlink_to(source.path)
    assert run("check", with_comma).code == run("check", source.path).code
