"""Repairs of stores of RocketMQ 5.3.3: their queues and IndexFiles equal the broker's again."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from reput.base.config import StoreConfig
from reput.base.findings import Kind
from reput.base.tasks import SerialRunner
from reput.core.store.facts import facts_of
from reput.engine.check.repairing.driver import plan_repair, repair_store, undo_repair
from reput.engine.rebuild.driver import rebuild_store
from reput.errors import UsageError
from reput.format.checkpoint import decode_checkpoint, encode_checkpoint
from tests.check.checking import checked, kinds
from tests.check.repairing import held
from tests.cli.running import reput as run
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.rebuild.test_five import assert_same_database, differing, files_below

Golden = Callable[[str], GoldenStore]
Damage = Callable[[Path], None]
QUEUES = ("consumequeue", "batchconsumequeue", "consumequeue_ext")


def first_below(store: Path, pattern: str) -> Path:
    found = (path for path in store.glob(pattern) if path.is_file() and "%" not in str(path))
    return min(found)


def flip_queue(store: Path) -> None:
    folder = "batchconsumequeue" if (store / "batchconsumequeue").exists() else "consumequeue"
    path = first_below(store, f"{folder}/*/*/*")
    data = bytearray(path.read_bytes())
    data[7] ^= 1
    path.write_bytes(data)


def lose_queues(store: Path) -> None:
    for name in QUEUES:
        if (store / name).exists():
            path = first_below(store, f"{name}/*/*/*")
            shutil.rmtree(path.parent)
            path.parent.mkdir()


def lose_index(store: Path) -> None:
    first_below(store, "index/*").unlink()


def lose_manifest(store: Path) -> None:
    first_below(store, "consumequeue/MANIFEST-*").unlink()


def lose_current(store: Path) -> None:
    (store / "consumequeue" / "CURRENT").unlink()


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("five_batch", flip_queue),
        ("five_batch", lose_queues),
        ("five_ext", lose_index),
        ("five_ext", flip_queue),
        ("five_ext", lose_queues),
        ("five_dledger", flip_queue),
        ("five_dledger", lose_index),
        ("five_rocksdb", lose_index),
        ("five_rocksdb", lose_manifest),
        ("five_rocksdb", lose_current),
    ],
)
def test_a_repaired_store_is_the_brokers(
    golden: Golden, tmp_path: Path, name: str, damage: Damage
) -> None:
    source = golden(name)
    config = StoreConfig.from_broker_settings(source.config)
    store = copy_store(source.path, tmp_path / "store")
    (store / "lock").touch()
    damage(store)
    before = held(store)
    plan = plan_repair(store, config=config)
    assert not plan.remaining
    repair_store(plan)
    assert checked(store, config) == []
    assert held(plan.backup) == before
    if name == "five_rocksdb":
        assert_same_database(store / "consumequeue", source.path / "consumequeue")
    else:
        for folder in QUEUES:
            assert (store / folder).exists() == (source.path / folder).exists()
            made, expected = (files_below(root / folder) for root in (store, source.path))
            # A unit whose entry was lost has no bit map after the repair.
            if name != "five_ext" or damage is lose_index:
                assert differing(made, expected) == []
    undo_repair(store)
    assert held(store) == before


def test_a_lost_light_queue_is_repaired(golden: Golden, tmp_path: Path) -> None:
    source = golden("five_ext")
    config = StoreConfig.from_broker_settings(source.config)
    store = copy_store(source.path, tmp_path / "store")
    for path in (store / "consumequeue" / "%LMQ%a" / "0").iterdir():
        path.unlink()
    assert kinds(checked(store, config)) == {"missing_queue_entry"}
    repair_store(plan_repair(store, config=config))
    assert checked(store, config) == []


def test_an_index_is_repaired_and_queues_stay(golden: Golden, tmp_path: Path) -> None:
    for name in ("five_batch", "five_rocksdb"):
        store = copy_store(golden(name).path, tmp_path / name)
        lose_index(store)
        plan = plan_repair(store)
        assert [step.name for step in plan.steps if step.verb == "rebuild"] == ["index/"]
        repair_store(plan)
        assert checked(store) == []
        # A broker appends to a database's manifest, which must fit the other files of the backup.
        for path in (store / "consumequeue").glob("MANIFEST-*"):
            backup = plan.backup / "consumequeue" / path.name
            assert path.stat().st_ino != backup.stat().st_ino


@pytest.mark.parametrize("number", [3, 4], ids=["master_flushed_offset", "confirmed_offset"])
@pytest.mark.parametrize("offset", [1 << 40, -2])
def test_an_offset_of_the_checkpoint_outside_of_the_log_is_reported_and_repaired(
    golden: Golden, tmp_path: Path, number: int, offset: int
) -> None:
    store = copy_store(golden("five_timer").path, tmp_path / "store")
    before = decode_checkpoint((store / "checkpoint").read_bytes())
    name = before._fields[number]
    log_end = facts_of(store).log.end
    wrong = encode_checkpoint(before._replace(**{name: offset}))
    (store / "checkpoint").write_bytes(wrong)
    (found,) = checked(store)
    assert (found.kind, found.file_offset) == (Kind.CHECKPOINT_AHEAD, 8 * number)
    assert found.detail == f"{name} is {offset}, but the log ends at {log_end}"
    repair_store(plan_repair(store, truncate_tail=True, salvage=True))
    assert checked(store) == []
    repaired = decode_checkpoint((store / "checkpoint").read_bytes())
    assert repaired[3:] == before._replace(**{name: 0})[3:]
    (store / "checkpoint").write_bytes(wrong)
    rebuild_store(SerialRunner(), store)
    assert checked(store) == []


def test_topics_of_batch_queues_are_known_from_their_folders(
    golden: Golden, tmp_path: Path
) -> None:
    source = golden("five_batch")
    store = copy_store(source.path, tmp_path / "store")
    shutil.rmtree(store / "config")
    flip_queue(store)
    repair_store(plan_repair(store))
    for folder in ("consumequeue", "batchconsumequeue"):
        made, expected = (files_below(root / folder) for root in (store, source.path))
        assert differing(made, expected) == []


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("five_dledger", ("--truncate-tail",), "only its group may change"),
        ("five_rocksdb", ("--salvage",), "cannot identify a lost message"),
        ("five_batch", ("--salvage",), "cannot identify a lost message"),
        ("five_multipath", (), "with reput rebuild, and restore"),
    ],
)
def test_what_is_not_repaired_is_one_line_that_says_what_to_do(
    golden: Golden, tmp_path: Path, name: str, options: tuple[str, ...], reason: str
) -> None:
    store = copy_store(golden(name).path, tmp_path / "store")
    before = held(store)
    found = run("repair", store, "--plan", *options)
    assert reason in found.err
    assert found.err.count("\n") == 1
    assert held(store) == before
    if not options:
        with pytest.raises(UsageError, match="several folders"):
            plan_repair(store)


def test_the_plan_says_what_a_lost_database_costs(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("five_rocksdb").path, tmp_path / "store")
    lose_manifest(store)
    found = run("repair", store, "--plan")
    assert "queues whose messages have all expired restart at queue offset 0" in found.out
    assert "keep     dledger" not in found.out
    ledger = copy_store(golden("five_dledger").path, tmp_path / "ledger")
    lose_index(ledger)
    assert "keep     dledger-n0/data/" in run("repair", ledger, "--plan").out
