"""The quick check: findings from names, sizes, headers and samples, and the same prediction as the full check."""

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from reput import Message, check, open_store
from reput.base.findings import Finding, Kind, Severity
from reput.engine.check.run import check_store
from tests.golden.sparse import copy_store
from tests.golden.stores import EVERY_FIVE, EVERY_STORE, GoldenLibrary, GoldenStore, TornCase
from tests.small import SMALL

Golden = Callable[[str], GoldenStore]
Torn = Callable[[str], TornCase]


def no_index(store: Path) -> None:
    shutil.rmtree(store / "index")


def no_queues(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")


def no_queues_of_a_topic(store: Path) -> None:
    shutil.rmtree(store / "consumequeue" / "orders")


def no_first_queue_file(store: Path) -> None:
    min((store / "consumequeue" / "orders" / "0").iterdir()).unlink()


def no_index_header(store: Path) -> None:
    with sorted((store / "index").iterdir())[1].open("r+b") as file:
        file.write(bytes(40))


DAMAGES = {
    "index_deleted": no_index,
    "queues_deleted": no_queues,
    "missing_queue": no_queues_of_a_topic,
    "missing_queue_entry": no_first_queue_file,
    "index_header": no_index_header,
}


def by_kind(findings: list[Finding]) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        found.setdefault(finding.kind, []).append(finding)
    return found


@pytest.mark.every_case
@pytest.mark.parametrize("has_abort", [False, True])
@pytest.mark.parametrize("kind", DAMAGES)
def test_gross_damage_is_found(kind: str, has_abort: bool, golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("orders").path, tmp_path / "store")
    DAMAGES[kind](store)
    if has_abort:
        (store / "abort").touch()
    quick, full = (by_kind(list(check_store(store, quick=each))) for each in (True, False))
    assert kind in quick
    assert all(one.severity is Severity.DAMAGE and one.cost for one in quick[kind])
    if kind in ("index_deleted", "queues_deleted", "missing_queue"):
        assert {(one.file, one.at_next_start) for one in quick[kind]} == {
            (one.file, one.at_next_start) for one in full[kind]
        }


@pytest.mark.parametrize("name", [*EVERY_STORE, *EVERY_FIVE])
def test_a_store_that_a_broker_left_is_not_called_damaged(name: str, golden: Golden) -> None:
    path = golden(name).path
    full = {one.kind for one in check_store(path)}
    assert {one.kind for one in check_store(path, quick=True)} <= full


@pytest.mark.parametrize("state", ["before", "after"])
def test_after_a_crash_it_finds_no_more_than_the_full_check_and_predicts_the_same(
    state: str, golden_library: GoldenLibrary, torn: Torn
) -> None:
    predicted: set[str] = set()
    for name in golden_library.torn_names():
        path = getattr(torn(name), state)
        full, quick = (by_kind(list(check_store(path, quick=each))) for each in (False, True))
        damages = {kind for kind, (one, *_) in quick.items() if one.severity is Severity.DAMAGE}
        assert damages <= {*full, "foreign_queue_entry", "index_header"}, (name, quick, full)
        for kind in ("unclean_shutdown", "crash_loses_index"):
            assert quick.get(kind) == full.get(kind), name
            predicted.update({kind} & quick.keys())
    assert state == "after" or predicted == {"unclean_shutdown"}


def test_index_files_that_the_next_start_deletes_are_predicted(
    golden: Golden, tmp_path: Path
) -> None:
    store = copy_store(golden("orders").path, tmp_path / "store")
    (store / "abort").touch()
    checkpoint = bytearray((store / "checkpoint").read_bytes())
    _, last, _ = struct.unpack_from(">qqq", checkpoint)
    # The checkpoint covers the whole log, but not the IndexFiles of the last two days.
    struct.pack_into(">qqq", checkpoint, 0, last, last, last - 2 * 86_400_000)
    (store / "checkpoint").write_bytes(checkpoint)
    quick, full = (by_kind(list(check_store(store, quick=each))) for each in (True, False))
    for kind in ("unclean_shutdown", "crash_loses_index"):
        assert quick[kind] == full[kind]
    assert quick["crash_loses_index"][0].count > 1


def test_a_store_without_a_message_is_valid_open_and_closed(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with open_store(store, "rw", config=SMALL) as opened:
        open_findings = list(check_store(store, quick=True))
        assert [one.kind for one in open_findings] == [Kind.STORE_IN_USE]
        assert opened.end_offset() == 0
    assert list(check_store(store, quick=True)) == []


def test_a_log_of_zeros_is_damage_if_the_checkpoint_has_the_time_of_a_message(
    tmp_path: Path,
) -> None:
    store = tmp_path / "store"
    with open_store(store, "rw", config=SMALL) as opened:
        opened.put(Message("orders", b"x"))
    for part in ("consumequeue", "index"):
        shutil.rmtree(store / part)
    (log,) = (store / "commitlog").iterdir()
    log.write_bytes(bytes(log.stat().st_size))
    found = by_kind(list(check_store(store, quick=True)))
    assert Severity.DAMAGE in {one.severity for one in found[Kind.UNREADABLE_RECORD]}


@pytest.mark.parametrize(
    "names",
    [["%LMQ%a"], ["Plain_multi"], ["%LMQ%a", "%LMQ%b", "%LMQ%c", "%LMQ%d-e", "%LMQ%user_1"]],
)
def test_a_quick_check_notices_lost_queues_of_further_topics(
    golden: Callable[[str], GoldenStore], tmp_path: Path, names: list[str]
) -> None:
    """A message may be in further queues (INNER_MULTI_DISPATCH), of light queues or of other topics."""
    store = copy_store(golden("lmq").path, tmp_path / "store")
    for name in names:
        shutil.rmtree(store / "consumequeue" / name)
    findings = list(check_store(store, quick=True))
    assert {str(finding.kind) for finding in findings} == {"missing_queue"}
    assert {Path(finding.file).parent.name for finding in findings} == set(names)


def test_a_quick_check_names_the_slots_of_a_timer_wheel(
    golden: Callable[[str], GoldenStore],
) -> None:
    assert "the slots of the timer wheel" in check(golden("five_timer").path, quick=True).verdict
