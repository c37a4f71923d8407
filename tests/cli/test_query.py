"""`reput query` on stores that a broker wrote, and on damaged and hostile ones."""

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reput.cli.main import DAMAGED, FOUND, NOT_FOUND, WRONG_USE
from reput.testing.builders import MESSAGE, write_log
from tests.cli.running import one_line, reput, reput_process
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
ORDER = ("--topic", "orders", "--key", "order-100377")


def expected_offsets(store: GoldenStore, topic: str, key: str) -> list[int]:
    """Return physical offsets of the messages with this key, newest first, from the broker's own table."""
    return [
        row.physical_offset
        for row in reversed(store.messages)
        if row.topic == topic and key in [row.uniq_key, *(row.keys or "").split(" ")]
    ]


def jsonl(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def without_scanned(text: str) -> str:
    """Remove the figure of scanned bytes, which may differ between runs."""
    return re.sub(r"[\d,]+ bytes message by message", "N bytes message by message", text)


def test_the_table_is_for_people(golden: Golden) -> None:
    ran = reput("query", golden("orders").path, *ORDER)
    assert ran.code == FOUND
    assert "reput prove" in one_line(ran)
    assert without_scanned(ran.out) == (
        "stored (UTC)             topic   queue  offset  tags       keys\n"
        "2026-10-12 08:35:06.637  orders  1/11   53821   cancelled  order-100377 customer-65\n"
        '  {"order": "order-100377", "reason": "payment declined"}\n'
        "2026-10-12 08:33:57.665  orders  1/10   52636   created    order-100377 customer-65\n"
        '  {"order": "order-100377", "customer": "customer-65", "items": [{"sku": "chair", "qty": 2, '
        '"price"…\n'
        "\n"
        "2 messages.\n"
        "Searched the CommitLog from 0 to 6,549,067, through 15 IndexFiles (15 spot-checked) "
        "and N bytes message by message.\n"
    )


@pytest.mark.parametrize("key", ["customer-65", "order-103921", "trk476120", "no such key"])
@pytest.mark.parametrize("topic", ["orders", "payments", "shipments", "%RETRY%billing"])
def test_jsonl_has_every_message_with_the_key_and_no_other(
    golden: Golden, topic: str, key: str
) -> None:
    store = golden("orders")
    ran = reput("query", store.path, "--topic", topic, "--key", key, "--format", "jsonl")
    expected = expected_offsets(store, topic, key)
    assert [message["physical_offset"] for message in jsonl(ran.out)] == expected
    assert ran.code == (FOUND if expected else NOT_FOUND)
    assert "Searched the CommitLog from 0 to 6,549,067" in ran.err


def test_jsonl_has_every_field_of_a_message(golden: Golden) -> None:
    store = golden("orders")
    ran = reput("query", store.path, *ORDER, "--limit", 1, "--format", "jsonl")
    row = next(row for row in store.messages if row.physical_offset == 53821)
    (message,) = jsonl(ran.out)
    assert message == {
        "message_id": "0A08090100002A9F000000000000D23D",
        "unique_key": row.uniq_key,
        "topic": row.topic,
        "queue_id": row.queue_id,
        "queue_offset": row.queue_offset,
        "physical_offset": row.physical_offset,
        "size_bytes": row.size,
        "store_timestamp": row.store_timestamp,
        "store_host": row.store_host,
        "born_timestamp": row.born_timestamp,
        "born_host": row.born_host,
        "flag": row.flag,
        "sys_flag": row.sys_flag,
        "transaction": "none",
        "reconsume_times": row.reconsume_times,
        "prepared_transaction_offset": row.prepared_transaction_offset,
        "body_crc_ok": True,
        "tags": "cancelled",
        "keys": ["order-100377", "customer-65"],
        "properties": dict(pair.split("\x01") for pair in row.properties.split("\x02")),
        "body": '{"order": "order-100377", "reason": "payment declined"}',
    }


def test_the_documented_fields_are_the_printed_ones(golden: Golden) -> None:
    page = (Path(__file__).parents[2] / "docs" / "message-json.md").read_text(encoding="utf-8")
    table = page[: page.index("## Back into a store")]
    documented = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    ran = reput("query", golden("orders").path, *ORDER, "--limit", 1, "--format", "jsonl")
    printed = list(jsonl(ran.out)[0])
    others = ["body_base64", "body_stored_base64", "body_error", "properties_string"]
    assert documented == ["store", *printed, *others, "properties_base64"]
    store = golden("orders").path
    of_several = reput("query", store, f"{store}/nowhere", *ORDER, "--format", "jsonl")
    assert list(jsonl(of_several.out)[0]) == ["store", *printed]
    columns = reput("query", golden("orders").path, *ORDER, "--format", "csv").lines[0].split(",")
    stated = table[table.index("## CSV") :].split("\n\n")[1].partition("columns:")[2]
    assert re.findall(r"`(\w+)`", stated) == [*columns, "store"]  # the first of several stores


def test_csv_is_read_back_by_a_csv_reader(golden: Golden) -> None:
    store = golden("orders")
    ran = reput("query", store.path, "--topic", "orders", "--key", "customer-65", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(ran.raw.decode(), newline="")))
    assert [int(row["physical_offset"]) for row in rows] == expected_offsets(
        store, "orders", "customer-65"
    )
    stored = {row.physical_offset: str(row.store_timestamp) for row in store.messages}
    assert all(row["store_timestamp"] == stored[int(row["physical_offset"])] for row in rows)
    assert json.loads(rows[0]["body"])["order"] in rows[0]["keys"]
    assert "14 messages." in ran.err


def test_pages_by_limit_and_cursor_join_to_the_whole(golden: Golden) -> None:
    store = golden("orders")
    arguments = ("query", store.path, "--topic", "orders", "--key", "customer-65")
    pages: list[object] = []
    cursor: list[str] = []
    while True:
        ran = reput(*arguments, "--limit", 5, "--format", "jsonl", *cursor)
        pages += [message["physical_offset"] for message in jsonl(ran.out)]
        more = re.search(r"there are more: continue with (--after) (\d+)", ran.err)
        if more is None:
            break
        cursor = [more[1], more[2]]
    assert pages == expected_offsets(store, "orders", "customer-65")


@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [
        ("1791794106637", "1791794106637", [53821]),
        ("2026-10-12T08:35:06.637Z", "2026-10-12T10:35:06.637+02:00", [53821]),
        ("2026-10-12T08:35:06.638", "now", []),
        ("0", "2026-10-12 08:35", [52636]),
    ],
)
def test_time_bounds_are_inclusive_to_the_millisecond(
    golden: Golden, begin: str, end: str, expected: list[int]
) -> None:
    window = ("--begin", begin, "--end", "2100-01-01" if end == "now" else end)
    ran = reput("query", golden("orders").path, *ORDER, *window, "--format", "jsonl")
    assert [message["physical_offset"] for message in jsonl(ran.out)] == expected
    assert ran.code == (FOUND if expected else NOT_FOUND)


def test_nothing_found_says_what_was_searched(golden: Golden) -> None:
    ran = reput("query", golden("orders").path, "--topic", "orders", "--key", "nobody")
    assert ran.code == NOT_FOUND
    assert one_line(ran) == (
        "reput: 15 IndexFiles are not proven, only spot-checked; to prove all: "
        f"reput prove {golden('orders').path}"
    )
    assert without_scanned(ran.out).splitlines() == [
        "No message.",
        "Searched the CommitLog from 0 to 6,549,067, through 15 IndexFiles (15 spot-checked) "
        "and N bytes message by message.",
    ]


def test_compat_answers_as_the_broker_did(golden: Golden) -> None:
    store = golden("orders")
    asked = [
        (query, answer)
        for query, answer in zip(store.queries, store.answers, strict=True)
        if answer.error is None and len(answer.query_message) > 1
    ][:20]
    assert len(asked) == 20
    for query, answer in asked:
        ran = reput(
            "query", store.path, "--compat", "--topic", query.topic, "--key", query.key,
            "--limit", query.max_num, "--begin", query.begin, "--end", query.end,
            "--format", "jsonl",
        )  # fmt: skip
        found = tuple(message["physical_offset"] for message in jsonl(ran.out))
        assert (ran.code, found) == (FOUND, answer.query_message)
        assert "as a broker answers" in ran.err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--compat", "--after", 5], "--after"),
        (["--compat", "--limit", -1], "--limit"),
        (["--limit", 0], "--limit"),
        (["--hash-slots", 999, "--index-items", 4000], "--hash-slots and --index-items"),
        (["--broker-config", "/no/conf"], "/no/conf"),
    ],
)
def test_options_that_cannot_be_right(golden: Golden, options: list[object], says: str) -> None:
    ran = reput("query", golden("orders").path, *ORDER, *options)
    assert ran.code == WRONG_USE
    assert says in one_line(ran)


def test_settings_from_options_and_from_a_broker_configuration(
    golden: Golden, tmp_path: Path
) -> None:
    store = golden("orders")
    config = tmp_path / "broker.conf"
    config.write_text("maxHashSlotNum=1000\nmaxIndexNum=4000\n")
    plain = reput("query", store.path, *ORDER)
    for options in (["--broker-config", config], ["--hash-slots", 1000, "--index-items", 4000]):
        assert reput("query", store.path, *ORDER, *options) == plain


def test_an_index_from_elsewhere(golden: Golden, tmp_path: Path) -> None:
    store = golden("orders")
    bare = copy_store(store.path, tmp_path / "bare")
    for file in (bare / "index").iterdir():
        file.unlink()
    without = reput("query", bare, *ORDER)
    assert (without.code, without.lines[:5]) == (
        FOUND,
        reput("query", store.path, *ORDER).lines[:5],
    )
    assert "6,549,067 bytes message by message" in without.lines[-1]
    beside = reput("query", bare, *ORDER, "--index", store.path)
    whole = reput("query", store.path, *ORDER)
    assert (beside.code, beside.lines) == (whole.code, whole.lines)
    nowhere = reput("query", bare, *ORDER, "--index", tmp_path / "mistyped")
    assert (nowhere.code, nowhere.out) == (WRONG_USE, "")
    assert one_line(nowhere).endswith("mistyped: no such directory")


def test_what_could_not_be_read_is_told_and_exits_with_3(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("orders").path, tmp_path / "damaged")
    for file in (store / "index").iterdir():
        file.unlink()
    log = store / "commitlog" / "00000000000001048576"
    content = bytearray(log.read_bytes())
    content[4:8] = b"\0\0\0\0"  # the magic of the first record
    log.write_bytes(content)
    ran = reput("query", store, *ORDER)
    assert ran.code == DAMAGED
    assert "2 messages." in ran.out
    assert "1,048,576 bytes could not be read: messages in it are missing" in ran.out
    assert one_line(ran).startswith(f"reput: {log}: offset 0: physical offset 1048576: ")


def test_a_damaged_index_file_is_told_and_scanned_around(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("orders").path, tmp_path / "damaged")
    oldest = min((store / "index").iterdir())
    oldest.write_bytes(oldest.read_bytes()[:1000])
    ran = reput("query", store, *ORDER)
    assert (ran.code, "reput prove" in one_line(ran)) == (FOUND, True)
    assert "2 messages." in ran.out
    assert f"Not used: {oldest}" in ran.out


def test_a_store_cannot_steer_the_terminal(tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07\u202e\r\n\x9b31m"
    properties = f"KEYS\x01k {evil.split()[0]}\x02TAGS\x01{evil}".encode()
    message = replace(MESSAGE, topic="T", body=evil.encode(), properties_bytes=properties)
    store = write_log(tmp_path, [message])
    ran = reput("query", store, "--topic", "T", "--key", "k")
    assert ran.code == FOUND
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", ran.out)
    assert "\\x1b]0;owned\\x07" in ran.out
    assert len(ran.lines) == 6
    bracketed = replace(message, body=b"[bold red]not markup[/] :smile:")
    ran = reput("query", write_log(tmp_path / "2", [bracketed]), "--topic", "T", "--key", "k")
    assert "  [bold red]not markup[/] :smile:\n" in ran.out


def test_bodies_that_are_no_text(tmp_path: Path) -> None:
    bodies = [b"\xff\xfe\x00", b"", "naïve 中文 🙂".encode(), "é".encode() * 300]
    store = write_log(tmp_path, [replace(MESSAGE, body=body) for body in bodies])
    table = reput("query", store, "--topic", "T", "--key", "k")
    previews = [line.strip() for line in table.lines[2:9:2]]
    assert previews[1:] == ["naïve 中文 🙂", "", "<3 bytes>"]
    assert previews[0].rstrip("…") == "é" * 97
    messages = jsonl(reput("query", store, "--topic", "T", "--key", "k", "--format", "jsonl").out)
    assert [message.get("body") for message in messages] == ["é" * 300, "naïve 中文 🙂", "", None]
    assert messages[-1]["body_base64"] == "//4A"
    rows = reput("query", store, "--topic", "T", "--key", "k", "--format", "csv").out
    read = list(csv.DictReader(io.StringIO(rows, newline="")))
    assert [(row["body"], row["body_base64"]) for row in read] == [
        ("é" * 300, ""), ("naïve 中文 🙂", ""), ("", ""), ("", "//4A")
    ]  # fmt: skip
    assert [line.split(",")[-3] for line in rows.splitlines()[-2:]] == ['""', ""]


def test_an_old_terminal_gets_escapes_instead_of_a_traceback(tmp_path: Path) -> None:
    store = write_log(tmp_path, [replace(MESSAGE, body="中文".encode())])
    ran = reput_process(
        "query", store, "--topic", "T", "--key", "k",
        env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"},
    )  # fmt: skip
    assert (ran.code, ran.err) == (FOUND, "")
    assert "\\u4e2d\\u6587" in ran.out


def test_without_a_topic_all_are_searched(golden: Golden) -> None:
    store, key = golden("orders"), "order-100377"
    topics = {row.topic for row in store.messages}
    ran = reput("query", store.path, "--key", key, "--format", "jsonl")
    found = [line["physical_offset"] for line in jsonl(ran.out)]
    everywhere = [o for topic in topics for o in expected_offsets(store, topic, key)]
    assert found == sorted(everywhere, reverse=True)
    assert len(found) > len(expected_offsets(store, "orders", key))
    ran = reput("query", store.path, "--key", key, "--compat")
    assert ran.code == WRONG_USE
    assert "--topic" in one_line(ran)


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("command", ["query", "tail"])
def test_time_topic_and_offset_stay_whole_at_any_width(
    golden: Golden, monkeypatch: pytest.MonkeyPatch, width: int, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    ran = reput(command, golden("orders").path, "--key", "order-100377")
    lines = [line for line in ran.lines if line.startswith("2026")]
    assert len(lines) == 3
    for line in lines:
        assert re.match(
            r"2026-10-12 08:3\d:0?\d\d\.\d{3}  (orders|payments)\s+1/1\d\s+5\d{4} ", line
        )
        assert len(line) <= width
    assert ran.lines[0].split() == ["stored", "(UTC)", "topic", "queue", "offset", "tags", "keys"]
