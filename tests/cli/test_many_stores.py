"""Commands over several stores: one answer with a store column, incomplete where a store cannot be read."""

import csv
import io
import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from reput.cli.main import DAMAGED, FOUND, NOT_FOUND, UNREAD, WARNED, WRONG_USE
from reput.engine.stores.monitoring import prometheus_lines
from tests.cli.running import one_line, reput
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
KEY = "order-103921"  # eight messages of `orders` have it
ID = "C29D7DF7AC9FCF1B47E573A82B41892C"
FLEET = """
[[store]]
name = "a"
path = "orders"
cluster = "main"
broker = "broker-a"
broker_id = 0

[[store]]
name = "a-slave"
path = "slave"
cluster = "main"
broker = "broker-a"
broker_id = 1

[[store]]
name = "b"
path = "tricky"
"""


@pytest.fixture
def folder(golden: Golden, tmp_path: Path) -> Path:
    """A master, its slave and another broker; with a fleet file."""
    for path, name in {"orders": "orders", "slave": "orders", "tricky": "tricky"}.items():
        copy_store(golden(name).path, tmp_path / path)
    (tmp_path / "fleet.toml").write_text(FLEET)
    return tmp_path


@pytest.fixture
def fleet(folder: Path) -> Path:
    return folder / "fleet.toml"


def with_gone(fleet: Path) -> Path:
    """Add a store that does not exist."""
    fleet.write_text(f'{fleet.read_text()}\n[[store]]\nname = "gone"\npath = "gone"\n')
    return fleet


def test_no_store_at_all_is_one_line() -> None:
    ran = reput("query", "--key", KEY)
    assert ran.code == WRONG_USE
    assert "name a STORE, or a fleet file with --stores" in one_line(ran)


def test_a_key_is_answered_by_all_stores_and_messages_of_replicas_once(fleet: Path) -> None:
    ran = reput("query", "--stores", fleet, "--key", KEY)
    assert ran.code == FOUND
    assert ran.lines[0].split()[:3] == ["stored", "(UTC)", "store"]
    assert "8 messages in 1 of 3 stores." in ran.lines
    assert any(line.startswith("a-slave: 8 messages, 8 not shown") for line in ran.lines)
    assert ran.lines[-1].startswith("1 store without a message; 1,835,174 bytes of log")
    alone = reput("query", fleet.parent / "orders", "--key", KEY, "--format", "jsonl")
    many = reput("query", "--stores", fleet, "--key", KEY, "--format", "jsonl")
    objects = [json.loads(line) for line in many.lines]
    assert [one.pop("store") for one in objects] == ["a"] * 8
    assert objects == [json.loads(line) for line in alone.lines]
    table = reput("query", "--stores", fleet, "--key", KEY, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(table.out)))
    assert [row["store"] for row in rows] == ["a"] * 8


def test_a_store_that_cannot_be_read_makes_the_answer_incomplete(fleet: Path) -> None:
    ran = reput("query", "--stores", with_gone(fleet), "--key", KEY)
    assert ran.code == DAMAGED
    assert "8 messages in 1 of 4 stores; 1 store could not be read." in ran.lines
    assert "reput: gone: not searched: " in ran.err


def test_a_replica_answers_for_one_that_cannot_be_read_if_it_cannot_lag_behind_it(
    fleet: Path,
) -> None:
    (fleet.parent / "slave").rename(fleet.parent / "away")
    ran = reput("query", "--stores", fleet, "--key", KEY)
    assert ran.code == FOUND
    assert "8 messages in 1 of 3 stores; 1 store could not be read." in ran.lines
    assert "reput: a-slave: not searched: " in ran.err
    assert "reput: a-slave: its replica a was searched instead" in ran.err
    assert reput("query", "--stores", fleet, "--key", "no-such-key").code == NOT_FOUND
    assert reput("tail", "--stores", fleet).code == FOUND
    assert reput("query", "--stores", fleet, "--topic", "orders", "--limit", "1").code == FOUND
    (fleet.parent / "away").rename(fleet.parent / "slave")
    (fleet.parent / "orders").rename(fleet.parent / "away")
    ran = reput("query", "--stores", fleet, "--key", KEY)
    assert ran.code == DAMAGED  # incomplete: only the slave was searched, which may lack messages
    assert "8 messages in 1 of 3 stores; 1 store could not be read." in ran.lines
    assert reput("tail", "--stores", fleet).code == DAMAGED
    fleet.write_text(FLEET.replace("broker_id = 0", "").replace("broker_id = 1", ""))
    assert reput("query", "--stores", fleet, "--key", KEY).code == FOUND


def test_an_answer_by_time_is_incomplete_without_a_queue_that_has_its_messages(
    fleet: Path,
) -> None:
    """The missing queue is noticed, although only samples of a long log are read."""
    orders = fleet.parent / "orders"
    shutil.rmtree(orders / "consumequeue" / "orders" / "1")
    options = ["--topic", "orders", "--begin", "2026-10-18", "--end", "2026-10-18T12:00"]
    lost = f"{orders}/consumequeue/orders/1: physical offset "
    for command in (["query"], ["tail", "-n", "500"]):
        ran = reput(*command, orders, fleet.parent / "tricky", *options)
        assert ran.code == DAMAGED
        assert f"reput: {orders}: {lost}" in ran.err
        ran = reput(*command, orders, *options)
        assert ran.code == DAMAGED
        assert f"reput: {lost}" in ran.err
    ran = reput("query", "--stores", fleet, *options)
    assert (ran.code, f"reput: a: {lost}" in ran.err) == (FOUND, True)
    assert "a: its replica a-slave was searched instead" in ran.err
    for others in (
        ["--topic", "shipments", "--begin", "2026-10-18"],
        ["--topic", "orders", "--begin", "2030-01-01"],
        ["--topic", "orders", "--end", "2020-01-01"],
    ):
        assert reput("query", orders, *others).code != DAMAGED


def test_messages_in_which_replicas_differ_are_a_finding(fleet: Path) -> None:
    found = reput("query", "--stores", fleet, "--key", KEY, "--format", "jsonl").lines[0]
    at = json.loads(found)["physical_offset"]
    log = min((fleet.parent / "slave" / "commitlog").iterdir())
    size = log.stat().st_size
    file = log.parent / f"{at // size * size:020d}"
    with file.open("r+b") as opened:
        opened.seek(at % size + 90)  # a byte of the body
        opened.write(b"\x07")
    ran = reput("query", "--stores", fleet, "--key", KEY)
    assert "9 messages in 2 of 3 stores" in ran.out
    assert f"differs at physical offset {at} from a, which has the same cluster" in ran.err


def test_a_query_without_a_key_reads_topic_and_time(fleet: Path) -> None:
    options = ["--topic", "orders", "--begin", "2026-10-18", "--end", "2026-10-18T12:00"]
    store = fleet.parent / "orders"
    every = [
        json.loads(line) for line in reput("tail", store, "-n", "all", "--format", "jsonl").lines
    ]
    wanted = [
        one["physical_offset"]
        for one in reversed(every)
        if one["topic"] == "orders" and 1792281600000 <= one["store_timestamp"] <= 1792324800000
    ]
    assert len(wanted) > 100
    for source in ([store], ["--stores", fleet]):
        ran = reput("query", *source, *options, "--format", "jsonl")
        assert ran.code == FOUND
        assert [json.loads(line)["physical_offset"] for line in ran.lines] == wanted
        tail = reput("tail", *source, *options, "-n", "all", "--format", "jsonl")
        assert [json.loads(line)["physical_offset"] for line in tail.lines] == wanted[::-1]
    tagged = reput("query", store, *options, "--tag", "created", "--format", "jsonl")
    assert {json.loads(line)["tags"] for line in tagged.lines} == {"created"}
    few = reput("query", store, *options, "--limit", "3")
    assert "3 messages, and there are older ones." in few.lines
    assert reput("query", store, "--topic", "orders", "--begin", "2030-01-01").code == NOT_FOUND


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([], "pass --key, --id, --topic, --begin or --end"),
        (["--key", "k", "--id", "i"], "pass one of --key and --id"),
        (["--id", "i", "--tag", "x"], "cannot be combined with --key"),
        (["--topic", "t", "--limit", "0"], "--limit must be at least 1"),
        (["--topic", "t", "--after", "3"], "--after needs --key"),
    ],
)
def test_what_cannot_be_asked_is_one_line(folder: Path, options: list[str], line: str) -> None:
    ran = reput("query", folder / "orders", folder / "tricky", *options)
    assert ran.code == WRONG_USE
    assert line in one_line(ran)


def test_an_id_is_found_and_shown_wherever_it_is(fleet: Path) -> None:
    found = reput("query", "--stores", fleet, "--id", ID, "--format", "jsonl")
    assert [json.loads(line)["store"] for line in found.lines] == ["a"]
    alone = reput("show", fleet.parent / "orders", ID)
    shown = reput("show", "--stores", fleet, ID)
    assert (shown.code, shown.lines[0].split()) == (FOUND, ["store", "a"])
    assert shown.lines[1:] == alone.lines
    place = reput("show", fleet.parent / "orders", fleet.parent / "tricky", "0", "--format", "json")
    assert place.out.count('"store":') == 2
    both = reput("show", fleet.parent / "orders", fleet.parent / "tricky", "0", "--body-only")
    assert both.code == WRONG_USE
    assert reput("show", "--stores", fleet, "no-such-id").code == NOT_FOUND
    assert reput("show", "--stores", with_gone(fleet), "no-such-id").code == DAMAGED


def test_the_last_messages_of_all_stores_are_in_order_of_time(fleet: Path) -> None:
    ran = reput("tail", "--stores", fleet, "-n", "5", "--format", "jsonl")
    times = [json.loads(line)["store_timestamp"] for line in ran.lines]
    assert times == sorted(times)
    assert len(times) == 5
    every = [
        json.loads(line)
        for line in reput("tail", "--stores", fleet, "-n", "all", "--format", "jsonl").lines
    ]
    assert {one["store"] for one in every} == {"a", "b"}
    assert len(every) == 19_622 + 1_626
    ran = reput("tail", "--stores", with_gone(fleet), "-n", "1")
    assert ran.code == DAMAGED
    assert "gone: not read" in ran.err


def test_lines_of_several_stores_can_be_put(fleet: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_text(reput("query", "--stores", fleet, "--key", KEY, "--format", "jsonl").out)
    ran = reput(
        "put", tmp_path / "new", lines, "--log-file-size", "64KiB", "--queue-entries", "50",
        "--hash-slots", "64", "--index-items", "300",
    )  # fmt: skip
    assert ran.code == FOUND
    assert len(reput("tail", tmp_path / "new", "-n", "all", "--format", "jsonl").lines) == 8


def test_checks_are_sorted_by_severity_and_tell_warnings_from_damage(fleet: Path) -> None:
    ran = reput("check", "--stores", fleet)
    assert ran.code == FOUND
    assert ran.lines[-1] == "3 stores: 3 ok, 1 of them replicas; 9,240,576 bytes of CommitLog"
    (fleet.parent / "tricky" / "abort").touch()
    ran = reput("check", "--stores", fleet, "--quick")
    assert (ran.code, ran.lines[0].split()[:2]) == (WARNED, ["b", "warning"])
    assert ran.lines[-1].startswith("3 stores: 1 warning, 2 ok")
    assert reput("check", "--stores", fleet, "--quick", "--fail-on", "damage").code == FOUND
    assert reput("check", fleet.parent / "tricky", "--quick").code == WARNED
    min((fleet.parent / "slave" / "consumequeue").glob("*/*/*")).unlink()
    ran = reput("check", "--stores", with_gone(fleet))
    assert ran.code == DAMAGED
    states = [line.split()[:2] for line in ran.lines[:-1]]
    assert states == [["a-slave", "damaged"], ["gone", "not"], ["b", "warning"], ["a", "ok"]]
    lines = [
        json.loads(one) for one in reput("check", "--stores", fleet, "--format", "jsonl").lines
    ]
    assert {one["store"] for one in lines if "kind" in one} == {"a-slave", "b"}
    assert lines[-1]["total"]["states"] == {"damaged": 1, "not read": 1, "warning": 1, "ok": 1}


def test_replicas_whose_logs_differ_are_damage(fleet: Path) -> None:
    log = min((fleet.parent / "slave" / "commitlog").iterdir())
    with log.open("r+b") as file:
        file.seek(100)
        file.write(b"\x01\x02\x03")
    ran = reput("fleet", "--stores", fleet)
    assert ran.code == DAMAGED
    state = [line.split()[:2] for line in ran.lines[1:4]]
    assert state == [["a-slave", "damaged"], ["a", "ok"], ["b", "ok"]]
    assert ran.lines[1].endswith("replica_differs")
    assert any(line.startswith("damage: replica_differs: ") for line in ran.lines)
    assert ran.lines[-1].startswith("3 stores: 1 damaged, 2 ok; ")
    figures = reput("fleet", "--stores", fleet, "--format", "prometheus").lines
    assert 'reput_store_state{store="a-slave"} 2' in figures
    ran = reput("check", "--stores", fleet, "--quick", "--format", "nagios")
    assert (ran.code, ran.lines[0].split("|")[1]) == (
        2, " stores=3 damaged=1 not_read=0 warning=0 ok=2"
    )  # fmt: skip
    assert ran.lines[1].endswith(" (replica_differs)")


def test_a_trace_reports_replicas_that_differ_and_searches_both(fleet: Path) -> None:
    log = min((fleet.parent / "slave" / "commitlog").iterdir())
    with log.open("r+b") as file:
        file.seek(100)
        file.write(b"\x01\x02\x03")
    for layout in ("text", "jsonl"):
        ran = reput("trace", "--stores", fleet, "--key", KEY, "--format", layout)
        assert (ran.code, "differs at physical offset 100 from a" in ran.err) == (FOUND, True)
    with_gone(fleet)
    ran = reput("trace", "--stores", fleet, "--key", KEY, "--format", "jsonl")
    assert (ran.code, "gone: not searched: " in ran.err) == (DAMAGED, True)
    end = json.loads(ran.lines[-1])
    assert (end["complete"], end["failed"][0].split(": ")[:2]) == (False, ["gone", "not searched"])
    assert [one["kind"] for one in end["differing"]] == ["replica_differs"]


def test_a_replica_that_lags_behind_is_one(fleet: Path) -> None:
    log = max((fleet.parent / "slave" / "commitlog").iterdir())
    with log.open("r+b") as file:
        file.seek(log.stat().st_size // 3)
        file.write(bytes(log.stat().st_size - file.tell()))
    ran = reput("fleet", "--stores", fleet)
    assert "replica_differs" not in ran.out
    assert "1 of them replicas" in ran.lines[-1]


def test_equal_names_are_not_believed_without_equal_bytes(fleet: Path) -> None:
    text = (
        fleet.read_text()
        .replace('path = "slave"', 'path = "tricky"')
        .replace('"b"\npath = "tricky"', '"b"\npath = "slave"')
    )
    fleet.write_text(text)
    ran = reput("fleet", "--stores", fleet)
    assert "replica_differs" in ran.out
    assert len(reput("query", "--stores", fleet, "--key", KEY, "--format", "jsonl").lines) == 16


def test_the_fleet_s_lines_are_figures(fleet: Path) -> None:
    ran = reput("fleet", "--stores", with_gone(fleet))
    assert ran.code == UNREAD
    columns = "store state newest per day full in indexed lag oldest unreadable proof"
    assert ran.lines[0].split() == columns.split()
    assert [line.split()[0] for line in ran.lines[1:5]] == ["gone", "a", "a-slave", "b"]
    assert {line.split(":")[0] for line in ran.lines[5:-1]} == {"? b", "? a and 2 more stores"}
    assert " 99% " in ran.lines[2]
    objects = [
        json.loads(line) for line in reput("fleet", "--stores", fleet, "--format", "jsonl").lines
    ]
    found = next(one for one in objects if one.get("store") == "a" and "findings" in one)
    assert found["newest_ms"] == 1792454394688
    assert 0.99 < found["indexed"] < 1
    assert found["log_bytes"] == 6_549_067
    assert 600_000 < found["bytes_per_day"] < 900_000


def test_names_have_no_invisible_characters_in_json_lines(fleet: Path, tmp_path: Path) -> None:
    evil = tmp_path / "evil.toml"
    (path,) = {entry["path"] for entry in tomllib.loads(fleet.read_text())["store"][:1]}
    evil.write_text(f'[[store]]\nname = "safe\\u202egnp"\npath = "{fleet.parent / path}"\n')
    (line,) = reput("fleet", "--stores", evil, "--format", "jsonl").lines[:1]
    assert "safe\\u202egnp" in line
    assert json.loads(line)["store"] == "safe\u202egnp"


def test_nagios_gets_a_plugin_s_output_and_exit_code(fleet: Path) -> None:
    nagios = ["--format", "nagios", "--quick"]
    ran = reput("check", "--stores", fleet, *nagios)
    assert (ran.code, ran.out.startswith("REPUT OK - 3 stores: 3 ok")) == (0, True)
    assert ran.lines[0].endswith("| stores=3 damaged=0 not_read=0 warning=0 ok=3")
    (fleet.parent / "tricky" / "abort").touch()
    ran = reput("check", "--stores", fleet, *nagios)
    assert (ran.code, ran.lines[1].split(":")[0]) == (1, "b")
    assert reput("check", "--stores", fleet, *nagios, "--fail-on", "damage").code == 0
    assert reput("check", "--stores", with_gone(fleet), *nagios).code == 3
    (fleet.parent / "slave" / "checkpoint").write_bytes(b"short")
    ran = reput("check", "--stores", fleet, *nagios)
    assert (ran.code, ran.out.startswith("REPUT CRITICAL")) == (2, True)


def test_prometheus_gets_a_textfile(fleet: Path) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    ran = reput("fleet", "--stores", with_gone(fleet), "--format", "prometheus")
    found = {
        (sample.name, sample.labels["store"]): sample.value
        for family in parser.text_string_to_metric_families(ran.out)
        for sample in family.samples
    }
    assert found["reput_store_state", "gone"] == 3
    assert found["reput_store_newest_message_seconds", "a"] == 1792454394.688
    assert ("reput_store_newest_message_seconds", "gone") not in found
    assert list(prometheus_lines([])) == []


def test_an_interrupted_check_is_resumed(fleet: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    options = ["--stores", fleet, "--quick", "--resume", kept]
    (fleet.parent / "orders").rename(tmp_path / "away")
    first = reput("check", *options)
    assert first.lines[-1].startswith("3 stores: 1 not read, 2 ok")
    (tmp_path / "away").rename(fleet.parent / "orders")
    (fleet.parent / "tricky").rename(tmp_path / "gone")  # checked before, so it is not read again
    with kept.open("a") as file:
        file.write('{"store": "torn')
    again = reput("check", *options)
    assert (again.code, again.lines[-1].split(";")[0]) == (
        FOUND,
        "3 stores: 3 ok, 1 of them replicas",
    )
    assert len(kept.read_text().splitlines()) == 4
    other = reput("stats", "--stores", fleet, "--resume", kept)
    assert other.code == WRONG_USE
    assert "belongs to another operation" in one_line(other)


def test_stores_are_rebuilt_into_folders_of_their_names(fleet: Path, tmp_path: Path) -> None:
    ran = reput("rebuild", "--stores", fleet, "--output", tmp_path / "out")
    assert ran.code == FOUND
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a", "a-slave", "b"]
    named = tmp_path / "bad.toml"
    named.write_text('[[store]]\nname = "../x"\npath = "orders"\n')
    ran = reput("rebuild", "--stores", named, "--output", tmp_path / "out")
    assert "give the store another name in a fleet file" in one_line(ran)
    ran = reput("rebuild", "--stores", fleet, "--queue-entries", "5")
    assert "--queue-entries: only for one store" in one_line(ran)


def test_figures_proofs_and_lag_are_of_all_stores(fleet: Path) -> None:
    figures = json.loads(reput("stats", "--stores", with_gone(fleet), "--format", "json").out)
    assert figures["total"]["states"] == {"damaged": 0, "not read": 1, "warning": 0, "ok": 3}
    assert [row["replica_of"] for row in figures["stores"]] == [None, "a", None, None]
    assert figures["stores"][0]["report"]["messages"] == 19_622
    proved = reput("prove", "--stores", fleet)
    assert proved.code == UNREAD
    assert "a  " in proved.out
    folder = fleet.parent / "orders" / "config"
    folder.mkdir(exist_ok=True)
    (folder / "consumerOffset.json").write_text('{"offsetTable":{"orders@billing":{0:5}}}')
    lag = reput("state", "lag", "--stores", fleet, "--format", "jsonl")
    assert lag.code == DAMAGED
    (row,) = [json.loads(line) for line in lag.lines]
    assert (row["store"], row["group"], row["committed"]) == ("a", "billing", 5)
    assert reput("state", "lag", "--stores", fleet).lines[-1].split()[0] == "billing"


def test_a_life_is_followed_over_stores_and_replicas_are_one(fleet: Path) -> None:
    ran = reput("trace", "--stores", fleet, "--key", KEY)
    assert ran.code == FOUND
    assert "8 records." in ran.lines
    assert sum(line.startswith("a: Searched the CommitLog") for line in ran.lines) == 1
    assert not any(line.startswith("a-slave:") for line in ran.lines)
    ran = reput("trace", "--stores", with_gone(fleet), "--key", KEY)
    assert ran.code == DAMAGED
    assert "8 records." in ran.lines
    assert "gone: not searched" in ran.err


def test_a_cluster_has_a_page_and_each_store_its_own(fleet: Path, tmp_path: Path) -> None:
    page = tmp_path / "cluster.html"
    ran = reput("report", "--stores", with_gone(fleet), "--quick", "--output", page)
    assert ran.code == DAMAGED
    text = page.read_text()
    pages = sorted(path.name for path in (tmp_path / "cluster.stores").iterdir())
    assert pages == ["1-a.html", "2-a-slave.html", "3-b.html"]
    assert all(f'href="cluster.stores/{name}"' in text for name in pages)
    assert "replica of a" in text
    assert "21,248" in text  # the messages of a and b, without the slave's copies of a's messages
    assert "<script" not in text


def test_a_look_up_takes_the_fleet_file(fleet: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys.csv"
    keys.write_text(f"topic,key\norders,{KEY}\n")
    ran = reput("lookup", "--stores", fleet, "--keys", keys, "--output", "-")
    assert ran.code == FOUND
    rows = [json.loads(line) for line in ran.lines]
    # The slave of a has the same messages, which are not listed again.
    assert [row["store"] for row in rows] == ["a"]
    alone = reput("lookup", fleet.parent / "orders", "--keys", keys, "--output", "-")
    offsets = [json.loads(line)["physical_offset"] for line in alone.lines]
    assert [row["physical_offset"] for row in rows] == offsets
    (fleet.parent / "slave").rename(fleet.parent / "away")
    out = tmp_path / "found"
    ran = reput("lookup", "--stores", fleet, "--keys", keys, "--output", out)
    assert ran.code == FOUND
    assert "a-slave: not searched: " in ran.out
    assert "; its replica a was searched instead" in ran.out
    covered = json.loads((tmp_path / "found.coverage.json").read_text())
    assert [row["store"] for row in covered] == ["a", "b", "a-slave"]
    assert (covered[2]["is_complete"], covered[2]["answered_by"]) == (False, "a")
    ran = reput("lookup", "--stores", with_gone(fleet), "--keys", keys, "--output", "-")
    assert ran.code == DAMAGED
    assert {json.loads(line)["is_complete"] for line in ran.lines} == {False}
    assert "gone: not searched: " in ran.err
    fleet.write_text(FLEET.replace('name = "b"', 'name = "b"\nconfig = "b.conf"'))
    (fleet.parent / "b.conf").write_text("maxHashSlotNum=7\nmaxIndexNum=9\n")
    ran = reput("lookup", "--stores", fleet, "--keys", keys, "--output", "-")
    assert (ran.code, "b: not searched: " in ran.err) == (DAMAGED, True)
    assert "do not fit 7 slots and 9 items" in ran.err
    fleet.write_text(FLEET.replace('name = "b"', 'name = "b"\nconfig = "away.conf"'))
    ran = reput("lookup", "--stores", fleet, "--keys", keys, "--output", "-")
    assert (ran.code, "b: not searched: " in ran.err) == (DAMAGED, True)


def test_an_export_takes_the_fleet_file_and_the_master_of_replicas(
    fleet: Path, tmp_path: Path
) -> None:
    out = tmp_path / "lake"
    ran = reput("export", "--stores", fleet, out, "--incremental")
    assert ran.code == DAMAGED  # bodies of `tricky` have wrong CRCs
    assert "a-slave: not exported, because it is a replica of a" in ran.out
    report = reput("export", "--stores", fleet, out, "--incremental", "--format", "json")
    assert set(json.loads(report.out)["stores"]) == {"a", "b"}
    lines = reput("export", "--stores", fleet, "-", "--to", "jsonl")
    assert len(lines.lines) == 19_622 + 1_626
    twice = reput("export", "--stores", fleet, fleet.parent / "orders", tmp_path / "other")
    assert "the same store as" in one_line(twice)
    assert "name a STORE, or a fleet file" in one_line(reput("export", out))
    named = reput(
        "export", "--stores", fleet, fleet.parent / "x", tmp_path / "other", "--name", "x"
    )
    assert "--name: omit it, because the fleet file has a name for each store" in one_line(named)
    log = min((fleet.parent / "slave" / "commitlog").iterdir())
    with log.open("r+b") as opened:
        opened.write(b"\x07")
    differs = reput("export", "--stores", fleet, tmp_path / "other")
    assert "exclude one of them" in one_line(differs)
