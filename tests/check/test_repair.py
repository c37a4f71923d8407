"""The repair of a store: every golden damage, plans that change nothing, undo, and refusals."""

import json
import os
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

import reput
from reput.base.config import StoreConfig
from reput.base.findings import Kind
from reput.cli.main import DAMAGED, FAILED, FOUND, WRONG_USE
from reput.engine.check.repairing.driver import plan_repair, repair_store, undo_repair
from reput.engine.check.repairing.log_damage import SALVAGED_PROPERTY
from reput.engine.check.run import check_store
from reput.engine.writer.put.message import Message
from reput.errors import (
    StoreAccessError,
    StoreChangedError,
    StoreError,
    StoreLockedError,
    StoreNotFoundError,
)
from reput.io.lock import locked
from reput.io.writer import exchange
from tests.check.checking import checked, facts, kinds, unchanged
from tests.check.repairing import (
    SMALL,
    assert_a_broker_starts,
    damaged_store,
    full_plan,
    held,
    repaired,
    second_record_of_second_file,
)
from tests.cli.running import one_line
from tests.cli.running import reput as run
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenLibrary, GoldenStore, TornCase
from tests.oracle.walk import read_log, walk
from tests.query.stores import expected_offsets, keyed_messages, offsets, walked_messages
from tests.recovery import checking
from tests.slow import IS_THOROUGH, slow_from
from tests.writer.golden_puts import store_config

Golden = Callable[[str], GoldenStore]
Torn = Callable[[str], TornCase]

# Each golden damage that a repair mends. Every run of `make test` tests the first three.
CASES = (
    "size_bigger_noabort", "short_file", "index_last_entry_half", "cq_one_topic_deleted",
    "abort_clean", "checkpoint_future_abort", "checkpoint_missing_abort", "checkpoint_missing_noabort",
    "cq_deleted_noabort", "cq_last_entry_zeroed", "crc_late_abort", "crc_late_noabort", "crc_old_abort",
    "crc_old_noabort", "index_count_zero_abort", "index_count_zero_noabort", "index_deleted_abort",
    "index_deleted_noabort", "index_header_zero_noabort", "index_short_file", "kill9",
    "magic_first_lastfile_abort", "name_collision", "tail_noabort",
)  # fmt: skip
BROKEN_BY_ITS_BROKER = ("name_collision", "lmq_restart")  # the broker left the damage
NOTHING_TO_REPAIR = ("index_junk_file", "lmq_restart")
OF_THEIR_OWN = ("kill9", "name_collision")  # they have other messages than `basic`


def damaged(case: TornCase) -> Path:
    return case.after if case.name in BROKEN_BY_ITS_BROKER else case.before


def test_no_case_is_left_out(golden_library: GoldenLibrary, torn: Torn) -> None:
    torn("kill9")
    assert sorted({*CASES, *NOTHING_TO_REPAIR}) == golden_library.torn_names()


@pytest.mark.every_case
@pytest.mark.parametrize("name", slow_from(3, CASES))
def test_a_golden_damage_is_repaired_and_its_messages_are_found(
    torn: Torn, tmp_path: Path, name: str
) -> None:
    case = torn(name)
    config = store_config(case)
    store = copy_store(damaged(case), tmp_path / "store")
    before = held(store)
    plan = repaired(store, config)
    assert plan.remaining == []
    assert checked(store, config) == checked(store) == []
    assert_a_broker_starts(store, config)
    checking.check_store(store, config)
    messages = _survivors(case, store)
    with reput.open_store(store) as opened:
        for query in _asked(case, messages):
            assert offsets(opened.query(*query)) == expected_offsets(messages, *query)
    undo_repair(store)
    assert held(store) == before


def _survivors(case: TornCase, store: Path) -> dict[tuple[str, str], dict[int, int]]:
    """Return by key, as `keyed_messages`, the messages of the undamaged store that the repaired store still has."""
    found = walk(read_log(store))
    there = {at for at, record in found.records if SALVAGED_PROPERTY not in record.properties}
    if case.name in OF_THEIR_OWN:
        assert len(there) == len(found.records)
        return walked_messages(damaged(case))
    rows = [row for row in case.base.messages if row.physical_offset in there]
    assert len(case.base.messages) - len(rows) <= 1  # each damage affects one message
    assert [(at, record.total_size) for at, record in found.records if at in there] == [
        (row.physical_offset, row.size) for row in rows
    ]
    return keyed_messages(rows)


def _asked(
    case: TornCase, messages: dict[tuple[str, str], dict[int, int]]
) -> list[tuple[str, str, int, int]]:
    """Return the case's queries, and queries of messages' keys without a time limit; only a sample in quick runs."""
    queries = sorted({(query.topic, query.key, query.begin, query.end) for query in case.queries})
    keys = [(*key, -(2**63), 2**63 - 1) for key in sorted(messages)]
    asked = [*queries, *keys[:: max(len(keys) // 200, 1)]]
    return asked if IS_THOROUGH else asked[::20]


@pytest.mark.parametrize("name", NOTHING_TO_REPAIR)
def test_what_is_no_damage_or_follows_from_the_log_stays(
    torn: Torn, tmp_path: Path, name: str
) -> None:
    case = torn(name)
    store = copy_store(damaged(case), tmp_path / "store")
    with unchanged(store):
        plan = repaired(store, store_config(case))
    assert plan.is_empty
    assert {one.finding.kind for one in plan.remaining} <= {
        "lmq_offsets_restarted", "misplaced_queue_entry",
    }  # fmt: skip
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


def test_a_valid_store_is_left_alone(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("extremes").path, tmp_path / "store")
    before = facts(tmp_path)
    ran = run("repair", store)
    assert (ran.code, ran.out) == (FOUND, f"{store} is valid: nothing to repair\n")
    assert facts(tmp_path) == before


def test_a_lost_message_leaves_a_placeholder_and_no_queue_offset_changes(tmp_path: Path) -> None:
    store = damaged_store(tmp_path / "store")
    lost = second_record_of_second_file(store)
    before = dict(walk(read_log(store)).records)
    repaired(store)
    after = dict(walk(read_log(store)).records)
    assert after.keys() == before.keys()
    assert {at for at in after if after[at] != before[at]} == {lost}
    old, new = before[lost], after[lost]
    assert (new.topic, new.queue_id, new.queue_offset, new.total_size) == (
        old.topic, old.queue_id, old.queue_offset, old.total_size,
    )  # fmt: skip
    assert (new.index_keys, new.properties) == ([], {SALVAGED_PROPERTY: "true"})
    assert list(check_store(store, config=SMALL)) == []


def test_a_record_that_no_queue_knows_becomes_a_rolled_back_transaction(tmp_path: Path) -> None:
    store = damaged_store(tmp_path / "store")
    for path in store.glob("consumequeue/*/*/*"):
        path.unlink()
    lost = second_record_of_second_file(store)
    plan = repaired(store)
    assert plan.entries_move
    found = dict(walk(read_log(store)).records)
    assert found[lost].sys_flag & 12 == 12
    assert list(check_store(store, config=SMALL)) == [], "a pre-blank entry keeps its place"
    assert_a_broker_starts(store, SMALL)


def test_the_log_changes_only_where_that_is_asked_for(tmp_path: Path) -> None:
    store = damaged_store(tmp_path / "store")
    before = held(store)
    repair_store(plan := plan_repair(store, config=SMALL))
    asked = {str(one.finding.kind): one.asked for one in plan.remaining}
    assert asked == {"body_crc": "salvage", "torn_log_end": "truncate_tail"}
    assert kinds(list(check_store(store, config=SMALL))) == set(asked)
    log = {name: data for name, data in held(store).items() if name.startswith("commitlog/")}
    assert log == {name: data for name, data in before.items() if name in log}
    assert held(store)["config/topics.json"] == b"{}"
    repair_store(plan := plan_repair(store, config=SMALL, truncate_tail=True))
    assert kinds(list(check_store(store, config=SMALL))) == {"body_crc"}
    assert plan.cut_at == walk(read_log(store)).end_offset
    repaired(store)
    assert list(check_store(store, config=SMALL)) == []
    for _ in range(3):
        undo_repair(store)
    assert held(store) == before
    with pytest.raises(StoreNotFoundError, match="no repair to undo"):
        undo_repair(store)


def test_cutting_takes_records_with_a_wrong_crc_at_the_end(tmp_path: Path) -> None:
    store = damaged_store(tmp_path / "store")
    last = walk(read_log(store)).records[-1][0]
    path = sorted((store / "commitlog").iterdir())[last // SMALL.commit_log_file_bytes]
    data = bytearray(path.read_bytes())
    data[last % SMALL.commit_log_file_bytes + 8] ^= 1  # a byte of the record's BODYCRC field
    path.write_bytes(data)
    repair_store(plan_repair(store, config=SMALL, truncate_tail=True))
    assert walk(read_log(store)).end_offset == last
    # `damaged_store` has a second message with a wrong CRC, which is not at the end.
    assert kinds(list(check_store(store, config=SMALL))) == {"body_crc"}


def test_cutting_takes_a_last_record_that_ends_with_a_zero(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("orders").path, tmp_path / "store")
    last = golden("orders").messages[-1]
    path = sorted((store / "commitlog").iterdir())[-1]
    with path.open("r+b") as file:
        file.seek(last.physical_offset + last.size - 1 - int(path.name))
        file.write(b"\0")
    (found,) = (one for one in check_store(store) if one.kind is Kind.TORN_LOG_END)
    assert found.physical_offset == last.physical_offset
    repair_store(plan := plan_repair(store))
    assert [str(one.finding.kind) for one in plan.remaining] == ["torn_log_end"]
    assert kinds(list(check_store(store))) == {"torn_log_end"}
    repair_store(plan_repair(store, truncate_tail=True))
    assert walk(read_log(store)).end_offset == last.physical_offset
    assert list(check_store(store)) == []


def test_a_plan_changes_nothing_and_the_repair_does_what_it_says(tmp_path: Path) -> None:
    store = damaged_store(tmp_path / "store")
    before = facts(tmp_path)
    options = ("--salvage", "--truncate-tail", "--hash-slots", 11, "--index-items", 40)
    planned = run("repair", store, "--plan", *options)
    assert facts(tmp_path) == before
    done = run("repair", store, *options)
    assert (planned.code, done.code) == (FOUND, FOUND)
    shown = [line for line in planned.lines if not line.startswith("  needs")]
    assert shown == [line for line in done.lines[:-1] if not line.startswith("  needs")]
    backup = tmp_path / "store.reput-repair" / "1" / "backup"
    assert done.lines[-1] == f"Repaired; the old state is in {backup}"
    verbs = {line.split()[0] for line in planned.lines[1:]}
    assert verbs == {"fill", "cut", "rebuild", "write", "remove", "keep", "backup", "needs"}
    for kind in (
        "body_crc",
        "torn_log_end",
        "missing_queue",
        "checkpoint_missing",
        "unclean_shutdown",
    ):
        assert kind in planned.out


def test_json_is_as_documented_and_an_undo_swaps_back(tmp_path: Path) -> None:
    store = damaged_store(tmp_path / "store")
    before = held(store)
    ran = run("repair", store, "--format", "json", "--hash-slots", 11, "--index-items", 40)
    found = json.loads(ran.out)
    assert (ran.code, found["schema"], found["done"]) == (DAMAGED, "reput-repair/1", True)
    page = (Path(__file__).parents[2] / "docs" / "repair.md").read_text()
    for name in {*found, *found["steps"][0], "asked"}:
        assert f"| `{name}` |" in page
    ran = run("repair", store, "--undo")
    undone = tmp_path / "store.reput-repair" / "1" / "undone"
    assert ran.out == f"Undone; the repaired state is in {undone}\n"
    assert held(store) == before
    ran = run("repair", store, "--undo", "--format", "json")
    assert one_line(ran).startswith(f"reput: {store}: no repair to undo")
    assert ran.code == WRONG_USE


def test_an_undo_after_more_was_put_is_refused(tmp_path: Path) -> None:
    store = damaged_store(tmp_path / "store")
    repaired(store)
    with reput.open_store(store, mode="rw", config=SMALL) as opened:
        opened.put(Message("A", b"more", ["later"]))
    after = held(store)
    with pytest.raises(StoreError, match="was written after the repair"):
        undo_repair(store)
    assert held(store) == after


def test_a_writer_continues_a_repaired_store(tmp_path: Path) -> None:
    store = damaged_store(tmp_path / "store")
    repaired(store)
    with reput.open_store(store, mode="rw", config=SMALL) as opened:
        assert opened.recovery.is_clean
        assert opened.recovery.truncated_bytes == 0
        opened.put(Message("B", b"more", ["later"], queue_id=0))
    checking.check_store(store, SMALL)


def test_who_has_a_file_open_keeps_it(tmp_path: Path) -> None:
    store = damaged_store(tmp_path / "store")
    lost = second_record_of_second_file(store)
    files = [path for path in sorted(store.rglob("*")) if path.is_file()]
    before = [path.read_bytes() for path in files]
    with ExitStack() as stack:
        still_open = [stack.enter_context(path.open("rb")) for path in files]
        opened = stack.enter_context(reput.open_store(store, hash_slots=11, index_items=40))
        found = set(offsets(opened.query(None, "all")))
        repaired(store)
        assert [file.read() for file in still_open] == before
        assert set(offsets(opened.query(None, "all"))) | {lost} == found | {lost}


def test_a_store_that_is_owned_is_refused(tmp_path: Path) -> None:
    store = damaged_store(tmp_path / "store")
    before = facts(tmp_path)
    with locked(store / "lock", "a broker"):
        for options in ((), ("--plan",)):
            ran = run("repair", store, *options)
            assert ran.code == FAILED
            assert "owns this store; stop it before a repair" in one_line(ran)
    assert facts(tmp_path) == before
    plan = full_plan(store)
    with locked(store / "lock", "a broker"), pytest.raises(StoreLockedError):
        repair_store(plan)


@pytest.mark.parametrize(
    "place", ["index/20990101000000000", "consumequeue/A/9", "config/x", "commitlog/link"]
)
def test_a_link_in_the_store_is_refused_and_nothing_outside_is_touched(
    tmp_path: Path, place: str
) -> None:
    store = damaged_store(tmp_path / "store")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"mine")
    (store / place).symlink_to(outside)
    before = facts(tmp_path)
    assert "is a link" in one_line(run("repair", store))
    assert facts(tmp_path) == before


def test_a_link_in_the_place_of_the_backups_is_refused(tmp_path: Path) -> None:
    store = damaged_store(tmp_path / "store")
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "store.reput-repair").symlink_to(outside)
    assert "is a link" in one_line(run("repair", store))
    assert list(outside.iterdir()) == []


def test_a_link_to_the_store_is_followed_and_stays(tmp_path: Path) -> None:
    store = damaged_store(tmp_path / "store")
    (tmp_path / "other").mkdir()
    link = tmp_path / "other" / "link"
    link.symlink_to(store)
    repaired(link)
    assert link.is_symlink()
    assert (tmp_path / "store.reput-repair" / "1" / "backup").is_dir()
    assert os.listdir(tmp_path / "other") == ["link"]


def test_too_little_space_is_one_line_and_changes_nothing(tmp_path: Path) -> None:
    store = damaged_store(tmp_path / "store")
    plan = full_plan(store)
    plan.free_bytes = plan.needed_bytes - 1
    before = facts(tmp_path)
    with pytest.raises(StoreAccessError, match="are free; free some space"):
        repair_store(plan)
    assert facts(tmp_path) == before


def test_a_store_that_changed_since_its_plan_is_refused(tmp_path: Path) -> None:
    store = damaged_store(tmp_path / "store")
    plan = full_plan(store)
    (store / "config" / "topics.json").write_bytes(b"{...}")
    before = held(store)
    with pytest.raises(StoreChangedError, match="changed while it was checked"):
        repair_store(plan)
    assert held(store) == before


def test_a_pipe_in_the_store_is_refused(tmp_path: Path) -> None:
    store = damaged_store(tmp_path / "store")
    os.mkfifo(store / "pipe")
    assert "is neither a file nor a folder" in one_line(run("repair", store))


@pytest.mark.parametrize("arguments", [("--undo", "--plan"), ("--undo", "--salvage")])
def test_an_undo_has_no_plan(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    ran = run("repair", tmp_path, *arguments)
    assert (ran.code, "--undo: cannot be combined with" in one_line(ran)) == (WRONG_USE, True)


def test_no_store_is_one_line(tmp_path: Path) -> None:
    for options in ((), ("--plan",), ("--undo",)):
        ran = run("repair", tmp_path / "nowhere", *options)
        assert ran.code == WRONG_USE
        one_line(ran)
    assert list(tmp_path.iterdir()) == []


def test_the_broker_s_sizes_are_asked_for_where_nothing_shows_them(tmp_path: Path) -> None:
    store = damaged_store(tmp_path / "store")
    for path in (store / "index").iterdir():
        path.unlink()
    plan = plan_repair(store, config=None)
    assert plan.sizes_assumed
    assert not plan_repair(store, config=StoreConfig(hash_slots=11, index_items=40)).sizes_assumed


def test_exchanged_log_files_are_refused_with_the_way_out(tmp_path: Path) -> None:
    store = tmp_path / "st ore"
    with reput.open_store(store, mode="rw", config=SMALL) as opened:
        opened.put_many(Message("T", bytes(40), [f"k{n}"]) for n in range(120))
    log = sorted((store / "commitlog").iterdir())
    before = held(store)
    for first, second in ((0, 1), (1, 3), (2, len(log) - 1)):
        exchange(log[first], log[second])
        wrong = held(store)
        with pytest.raises(StoreError, match="have exchanged names") as refused:
            full_plan(store)
        assert held(store) == wrong
        assert "\n" not in str(refused.value)
        subprocess.run(["sh", "-c", str(refused.value).rpartition("again: ")[2]], check=True)
        assert held(store) == before
        assert full_plan(store).is_empty


@pytest.mark.parametrize("number", [0, 1, -1])
def test_the_only_copy_of_messages_is_not_removed_with_a_wrong_name(
    tmp_path: Path, number: int
) -> None:
    with reput.open_store(tmp_path, mode="rw", config=SMALL) as opened:
        opened.put_many(Message("T", bytes(40), [f"k{n}"]) for n in range(120))
    file = sorted((tmp_path / "commitlog").iterdir())[number]
    away = file.rename(file.with_name(f"{file.name}.bak"))
    with pytest.raises(StoreError, match=f"that the log lacks; rename it to {file.name}, or"):
        full_plan(tmp_path)
    file.write_bytes(away.read_bytes())  # now it is a copy
    removed = [step.name for step in full_plan(tmp_path).steps if step.verb == "remove"]
    assert removed == [f"commitlog/{away.name}"]


def test_a_copy_of_a_log_file_under_another_name_is_refused(tmp_path: Path) -> None:
    with reput.open_store(tmp_path, mode="rw", config=SMALL) as opened:
        opened.put_many(Message("T", bytes(40), [f"k{n}"]) for n in range(120))
    log = sorted((tmp_path / "commitlog").iterdir())
    log[1].write_bytes(log[2].read_bytes())
    with pytest.raises(StoreError, match=f"copies of others.*{log[1].name}; move these copies out"):
        full_plan(tmp_path)


@pytest.mark.every_case
@pytest.mark.parametrize("name", ["commitlog", "config"])
@pytest.mark.parametrize(
    "step", ["begun", "linked", "log changed", "rebuilt", "checkpoint written", "checked", "durable", "recorded"]
)  # fmt: skip
def test_a_file_that_changes_and_gets_its_time_back_is_noticed(
    tmp_path: Path, step: str, name: str
) -> None:
    store = damaged_store(tmp_path / "store")
    plan = full_plan(store)
    path = max((store / name).iterdir()) if name == "config" else min((store / name).iterdir())
    status = path.stat()

    def change(done: str) -> None:
        if done == step:
            with path.open("r+b") as file:
                file.seek(status.st_size // 2)
                file.write(b"!")
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    with pytest.raises(StoreError, match=r"changed while|would not be valid"):
        repair_store(plan, at=change)
    assert path.stat().st_ino == status.st_ino
    assert (store / "abort").exists()


@pytest.mark.every_case
def test_a_file_that_changed_after_the_plan_and_got_its_time_back_is_noticed(
    tmp_path: Path,
) -> None:
    store = damaged_store(tmp_path / "store")
    plan = full_plan(store)
    path = store / "config" / "topics.json"
    status = path.stat()
    path.write_bytes(b"[]")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(StoreChangedError):
        repair_store(plan)


@pytest.mark.every_case
@pytest.mark.parametrize("name", ["%LMQ%a", "%LMQ%user_1"])
def test_exchanged_folders_of_a_light_queue_and_another_queue_are_restored(
    golden: Golden, tmp_path: Path, name: str
) -> None:
    """A broker restarted, so stated queue offsets do not show where entries are. Nor do those of another queue."""
    store = copy_store(golden("five_ext").path, tmp_path / "store")
    queues = [store / "consumequeue" / topic / "0" for topic in (name, "Parent")]
    before = [next(queue.iterdir()).read_bytes() for queue in queues]
    exchange(*queues)
    assert run("repair", store).code == FOUND
    assert list(check_store(store)) == []
    light, _ = (next(queue.iterdir()).read_bytes() for queue in queues)
    assert light == before[0]
