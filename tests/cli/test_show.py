"""`reput show`: one message, found in every way and printed in every format."""

import base64
import json
import re
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from reput.cli.main import DAMAGED, FOUND, NOT_FOUND
from reput.format import bodies
from reput.testing.builders import MESSAGE, write_log
from tests.cli.running import one_line, reput
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]

SHOWN = """\
topic            orders
queue            1, entry 11
physical offset  53821 (277 bytes)
message id       0A08090100002A9F000000000000D23D
unique key       C29D7DF7AC9FCF1B47E573A82B41892C
tags             cancelled
tags code        476588369
keys             order-100377, customer-65
stored           2026-10-12T08:35:06.637Z  1791794106637  10.8.9.1:10911
born             2026-10-12T08:35:06.619Z  1791794106619  10.8.3.240:59002
flag             0
system flags     0 (none set)
reconsumed       0 times
properties       TRACE_ID = 29e5cde73110acd2
                 CLUSTER = shop
body             55 bytes, JSON

{
  "order": "order-100377",
  "reason": "payment declined"
}
"""


@pytest.mark.parametrize(
    "which",
    [
        "53821",
        "orders/1/11",
        "0A08090100002A9F000000000000D23D",
        "0a08090100002a9f000000000000d23d",
        "C29D7DF7AC9FCF1B47E573A82B41892C",
    ],
    ids=["physical-offset", "queue-offset", "offset-id", "offset-id-lower-case", "unique-key"],
)
def test_a_message_is_shown_by_any_of_its_names(golden: Golden, which: str) -> None:
    ran = reput("show", golden("orders").path, which)
    assert (ran.code, ran.err, ran.out) == (FOUND, "", SHOWN)


def test_a_unique_key_in_a_topic(golden: Golden) -> None:
    unique_key = "C29D7DF7AC9FCF1B47E573A82B41892C"
    store = golden("orders").path
    assert reput("show", store, unique_key, "--topic", "orders").out == SHOWN
    elsewhere = reput("show", store, unique_key, "--topic", "payments")
    assert elsewhere.code == NOT_FOUND
    assert one_line(elsewhere) == f"reput: {store}: no message {unique_key}"


def test_json_is_the_message_of_the_query(golden: Golden) -> None:
    store = golden("orders").path
    shown = reput("show", store, "53821", "--format", "json")
    queried = reput(
        "query", store, "--topic", "orders", "--key", "order-100377", "--limit", 1,
        "--format", "jsonl",
    )  # fmt: skip
    assert shown.code == FOUND
    fields = json.loads(shown.out)
    assert fields.pop("tags_code") == 476588369
    assert fields == json.loads(queried.out)


@pytest.mark.parametrize("body", [b"\x00\xff\x1b[31m", b"", b"no newline at the end"])
def test_body_only_writes_the_bytes_and_nothing_else(tmp_path: Path, body: bytes) -> None:
    store = write_log(tmp_path, [replace(MESSAGE, body=body)])
    ran = reput("show", store, "0", "--body-only")
    assert (ran.code, ran.raw, ran.err) == (FOUND, body, "")


@pytest.mark.parametrize(
    "which", ["5", "99999999", "9" * 19, "orders/1/5000", "orders/9/0", "%/0/0"]
)
def test_where_there_is_no_message(golden: Golden, which: str) -> None:
    ran = reput("show", golden("orders").path, which)
    assert (ran.code, ran.out) == (NOT_FOUND, "")
    assert one_line(ran)


@pytest.mark.parametrize("which", ["no-such-id", "0A08090100002A9F0000000000000005", "9" * 32, "é"])
def test_an_id_that_nobody_has(golden: Golden, which: str) -> None:
    ran = reput("show", golden("orders").path, which)
    assert (ran.code, ran.out) == (NOT_FOUND, "")
    assert one_line(ran).endswith(f"no message {which}")


def test_an_id_is_looked_for_in_the_topics_of_the_log(tmp_path: Path) -> None:
    store = write_log(tmp_path, [MESSAGE])
    ran = reput("show", store, "some-unique-key")
    assert ran.code == NOT_FOUND
    assert one_line(ran) == f"reput: {store}: no message some-unique-key"


def test_a_body_that_does_not_match_its_crc(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("orders").path, tmp_path / "damaged")
    log = store / "commitlog" / "00000000000000000000"
    content = bytearray(log.read_bytes())
    content[53821 + 100] ^= 1
    log.write_bytes(content)
    ran = reput("show", store, "53821")
    assert ran.code == DAMAGED
    assert "DAMAGED: it does not match its CRC" in ran.out
    assert one_line(ran) == f"reput: {store}: offset 53821: the body does not match its CRC"


def test_a_record_whose_lengths_cannot_be_right(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("orders").path, tmp_path / "damaged")
    log = store / "commitlog" / "00000000000000000000"
    content = bytearray(log.read_bytes())
    content[53821 + 84 : 53821 + 88] = b"\x7f\xff\xff\xff"  # bytes of the body's length
    log.write_bytes(content)
    ran = reput("show", store, "53821")
    assert (ran.code, ran.out) == (DAMAGED, "")
    assert one_line(ran).startswith(f"reput: {log}: offset 53821: ")


def shown_body(folder: Path, body: bytes, sys_flag: int = 0) -> tuple[str, str]:
    """Return the heading of the body, and its lines."""
    store = write_log(folder, [replace(MESSAGE, body=body, sys_flag=sys_flag)])
    ran = reput("show", store, "0")
    assert (ran.code, ran.err) == (FOUND, "")
    said = re.search(r"^body +(.*)\n?\n?([^\0]*)\Z", ran.out, re.MULTILINE)
    assert said
    return said[1], said[2]


@pytest.mark.parametrize(
    ("body", "kind", "lines"),
    [
        (b"", "0 bytes, empty", ""),
        ("naïve 中文\n\tindented".encode(), "23 bytes, text", "naïve 中文\n        indented\n"),
        (b'{"a":[1,{"b":null}]}', "20 bytes, JSON", '{\n  "a": [\n    1,\n    {\n      "b": null\n    }\n  ]\n}\n'),
        (b"[" * 100_000, "100,000 bytes, text", "[" * 100_000 + "\n"),
        (b"{not json", "9 bytes, text", "{not json\n"),
        (b"\x1b]0;x\x07\r", "7 bytes, text", "\\x1b]0;x\\x07\\r\n"),
        (
            b"\xff\xfeAB" + bytes(14),
            "18 bytes, no text",
            "00000000  ff fe 41 42 00 00 00 00 00 00 00 00 00 00 00 00  |..AB............|\n"
            "00000010  00 00                                            |..|\n",
        ),
    ],
    ids=["empty", "text", "json", "deep", "no-json", "escapes", "binary"],
)  # fmt: skip
def test_a_body_is_shown_as_what_it_is(tmp_path: Path, body: bytes, kind: str, lines: str) -> None:
    assert shown_body(tmp_path, body) == (kind, lines)


def test_a_long_binary_body_is_cut_and_says_so(tmp_path: Path) -> None:
    _, lines = shown_body(tmp_path, b"\xff" * 5000)
    assert lines.splitlines()[-1] == "… 904 more bytes; --body-only writes all stored bytes"
    assert len(lines.splitlines()) == 4096 // 16 + 1


def test_a_compressed_body_is_inflated_to_be_read(tmp_path: Path) -> None:
    body = zlib.compress(b'{"order":1}')
    kind, lines = shown_body(tmp_path, body, sys_flag=1)
    assert kind == f"{len(body)} bytes compressed, 11 sent, JSON"
    assert json.loads(lines) == {"order": 1}


@pytest.mark.parametrize(("codec", "flag"), [("lz4", 1 | 1 << 8), ("zstd", 1 | 2 << 8)])
def test_each_compression_of_rocketmq_is_read(codec: str, flag: int, tmp_path: Path) -> None:
    sink = pa.BufferOutputStream()
    with pa.output_stream(sink, compression=codec) as stream:
        stream.write(b"hello")
    body = bytes(sink.getvalue())
    said = shown_body(tmp_path, body, flag)
    assert said == (f"{len(body)} bytes compressed, 5 sent, text", "hello\n")
    assert json.loads(reput("show", tmp_path, "0", "--format", "json").out)["body"] == "hello"


def test_a_large_body_is_not_cut(tmp_path: Path) -> None:
    large = zlib.compress(b"\xff" * (20 << 20), 9)  # 20 MiB, compressed to 20 kB
    kind, lines = shown_body(tmp_path, large, sys_flag=1)
    assert kind == f"{len(large):,} bytes compressed, {20 << 20:,} sent, no text"
    assert lines.splitlines()[-1].startswith(f"… {(20 << 20) - 4096:,} more bytes")


def test_a_body_that_would_be_too_large_is_shown_as_stored_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "MAX_BODY_BYTES", 10_000)
    bomb = zlib.compress(bytes(10_001))
    store = write_log(tmp_path, [replace(MESSAGE, body=bomb, sys_flag=1)])
    shown = reput("show", store, "0").out
    reason = "the body is shown as stored: its decompressed size exceeds 10000 bytes"
    assert f"{len(bomb)} bytes compressed, no text\n" in shown
    assert f"{reason}\n" in shown
    fields = json.loads(reput("show", store, "0", "--format", "json").out)
    assert fields["body_error"] == reason
    assert base64.b64decode(fields["body_base64"]) == bomb
    assert "body_stored_base64" not in fields


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ('{"n":1.0,"e":1E400,"i":123456789012345678901234567890.50}',
         '{\n  "n": 1.0,\n  "e": 1E400,\n  "i": 123456789012345678901234567890.50\n}\n'),
        ('{"a":1,"a":2,"":{},"l":[ ]}', '{\n  "a": 1,\n  "a": 2,\n  "": {},\n  "l": []\n}\n'),
        (r'{"s":"\u00e9 , : [ \" \\"}', '{\n  "s": "\\u00e9 , : [ \\" \\\\"\n}\n'),
        ('[' + '9' * 5000 + ']', '[\n  ' + '9' * 5000 + '\n]\n'),
    ],
    ids=["numbers", "duplicates", "escapes", "long-number"],
)  # fmt: skip
def test_of_json_only_the_white_space_changes(tmp_path: Path, body: str, lines: str) -> None:
    assert shown_body(tmp_path, body.encode()) == (f"{len(body):,} bytes, JSON", lines)


def test_flags_transactions_and_ipv6_are_explained(golden: Golden) -> None:
    store = golden("tricky")
    words = {4: "transaction: prepared", 8: "transaction: commit", 12: "transaction: rollback"}
    words |= {1: "body is compressed", 16: "born host is IPv6", 32: "store host is IPv6"}
    met = set()
    for row in store.messages:
        if row.sys_flag and row.sys_flag not in met:
            met.add(row.sys_flag)
            ran = reput("show", store.path, row.physical_offset)
            flags = next(line for line in ran.lines if line.startswith("system flags"))
            said = {bit: word for bit, word in words.items() if word in flags}
            transaction = {row.sys_flag & 12} - {0}
            assert set(said) == transaction | {bit for bit in (1, 16, 32) if row.sys_flag & bit}
    assert len(met) >= 4


def test_every_message_of_a_tricky_store_can_be_shown(golden: Golden) -> None:
    store = golden("tricky")
    for row in store.messages[::16]:
        ran = reput("show", store.path, row.physical_offset)
        assert (ran.code, ran.err) == (FOUND, "")
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", ran.out)


def test_of_several_messages_with_one_unique_key_the_newest_is_shown(tmp_path: Path) -> None:
    message = replace(MESSAGE, properties_bytes=b"UNIQ_KEY\x01twice")
    store = write_log(tmp_path, [replace(message, body=b"old"), replace(message, body=b"new")])
    ran = reput("show", store, "twice", "--topic", "T", "--body-only")
    assert (ran.code, ran.raw) == (FOUND, b"new")
    assert one_line(ran) == "reput: older messages with this id, by offset: 0"
