"""`reput erase`: requests that it refuses, copies of erased messages, audit records, output and exit codes."""

import hashlib
import json
import shutil
import subprocess
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

import reput
from reput.cli.main import main
from reput.errors import StoreError, UsageError
from reput.format.commit_log import SYS_FLAG_COMMIT, MessageExt, encode
from reput.format.erasure import ERASED_PROPERTY, decode_stored
from reput.format.host import Host
from reput.format.message_id import encode_offset_id
from reput.format.properties import (
    DEAD_LETTER_ORIGIN_ID,
    HALF_TOPIC,
    ORIGIN_MESSAGE_ID,
    SCHEDULE_TOPIC,
    TRACE_TOPIC,
)
from reput.io.writer import remove_tree
from reput.wings.erase import store_copy
from reput.wings.erase.store_copy import digest_of
from reput.wings.lakes.request import ExportRequest
from reput.wings.serve.remoting.commands import ResponseCode
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.remoting.client import Client, messages, serving
from tests.small import SMALL

Golden = Callable[[str], GoldenStore]
_HOST = Host("10.0.0.1", 10911)
_FILE_BYTES = 1 << 16


def _message(
    topic: str, properties: dict[str, str], body: bytes = b"private data", **given: int
) -> MessageExt:
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    return MessageExt(
        topic=topic, queue_id=0, queue_offset=0, physical_offset=0, size_bytes=0, flag=0,
        sys_flag=given.get("sys_flag", 0), body_crc=0, born_timestamp=1, born_host=_HOST,
        store_timestamp=1_700_000_000_000, store_host=_HOST, reconsume_times=0,
        prepared_transaction_offset=given.get("prepared", 0), body=body, properties_bytes=text.encode(),
    )  # fmt: skip


def _store(path: Path, messages: list[MessageExt], slack: bytes = b"") -> Path:
    """Return a store of one log file with these messages and bytes after them, and rebuilt indexes."""
    numbers: dict[str, int] = {}
    data = b""
    for message in messages:
        number = numbers.get(message.topic, 0)
        numbers[message.topic] = number + 1
        data += encode(replace(message, physical_offset=len(data), queue_offset=number))
    (path / "commitlog").mkdir(parents=True)
    whole = data + slack
    (path / "commitlog" / f"{0:020d}").write_bytes(whole + bytes(_FILE_BYTES - len(whole)))
    reput.rebuild(path, config=SMALL)
    return path


def _topics(report: reput.reports.EraseReport) -> dict[str, tuple[str, int]]:
    return {one.topic: (one.role, one.messages) for one in report.messages}


def test_the_digest_of_a_file_is_that_of_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_copy, "_HASHED_BYTES", 5000)
    file = tmp_path / "file"
    with file.open("wb") as writing:
        for at in (3, 1 << 20):  # with holes before, between and after the data
            writing.seek(at)
            writing.write(b"data")
        writing.truncate(3 << 20)
    assert digest_of(file) == hashlib.sha256(file.read_bytes()).hexdigest()


def test_copies_in_every_topic_are_erased(tmp_path: Path) -> None:
    origin = encode_offset_id(_HOST, 0)
    first = _message("orders", {"KEYS": "k-1", "UNIQ_KEY": "ID1"})
    half_at = len(encode(first))
    store = _store(
        tmp_path / "store",
        [
            first,
            _message(HALF_TOPIC, {"UNIQ_KEY": "ID1", "REAL_TOPIC": "orders", "REAL_QID": "0"}),
            _message("orders", {"UNIQ_KEY": "ID8"}, prepared=half_at, sys_flag=SYS_FLAG_COMMIT),
            _message("%RETRY%g", {ORIGIN_MESSAGE_ID: origin, "RETRY_TOPIC": "orders"}),
            _message("%DLQ%g", {DEAD_LETTER_ORIGIN_ID: "ID1"}),
            _message(SCHEDULE_TOPIC, {"UNIQ_KEY": "ID1", "DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "0"}),
            _message(TRACE_TOPIC, {"KEYS": "ID7 ID1 other", "UNIQ_KEY": "T1"}, b"trace of ID1 and ID7"),
            _message("orders", {"KEYS": "k-2", "UNIQ_KEY": "ID7"}, b"stays"),
        ],
    )  # fmt: skip
    plan = reput.erase(store, keys=["k-1"], plan_only=True)
    assert _topics(plan) == {
        "orders": ("message", 2), HALF_TOPIC: ("half", 1), "%RETRY%g": ("retry", 1), "%DLQ%g": ("dead_letter", 1),
        SCHEDULE_TOPIC: ("scheduled", 1), TRACE_TOPIC: ("trace", 1),
    }  # fmt: skip
    assert not plan.is_done
    report = reput.erase(store, tmp_path / "erased", keys=["k-1"])
    assert (report.records, report.bare) == (7, 0)
    with reput.open_store(tmp_path / "erased") as erased:
        assert [one.body for one in erased.query("orders", "k-2").messages] == [b"stays"]
        assert not erased.query("orders", "k-1").messages
        delayed = erased.get_by_queue(SCHEDULE_TOPIC, 0, 0)
        assert {"DELAY", "REAL_TOPIC", "REAL_QID", ERASED_PROPERTY} == set(delayed.properties)
        assert report.id.startswith(delayed.properties[ERASED_PROPERTY].strip())


def test_messages_of_one_list_are_not_copies_of_each_other(tmp_path: Path) -> None:
    listed = [f"UNIQ_KEY\x01OWN{n}\x02UNIQ_KEY\x01LIST\x02" for n in range(3)]
    messages = [_message("orders", {}) for _ in listed]
    messages = [
        replace(one, properties_bytes=text.encode())
        for one, text in zip(messages, listed, strict=True)
    ]
    retry = _message(
        "%RETRY%g", {"UNIQ_KEY": "LIST", ORIGIN_MESSAGE_ID: encode_offset_id(_HOST, 0)}
    )
    other = _message(
        "%RETRY%g", {"UNIQ_KEY": "LIST", ORIGIN_MESSAGE_ID: encode_offset_id(_HOST, 999)}
    )
    store = _store(tmp_path / "store", [*messages, retry, other])
    plan = reput.erase(store, keys=["OWN0"], plan_only=True)
    assert _topics(plan) == {"orders": ("message", 1), "%RETRY%g": ("retry", 1)}


def test_messages_without_room_for_a_tombstone_are_zeros(tmp_path: Path) -> None:
    messages = [_message("t", {}, bytes([length + 1]) * length) for length in range(60)]
    short = [_message("t", {"a": "b" * length}, b"") for length in range(1, 60)]
    store = _store(tmp_path / "store", [*messages, *short, _message("u", {"KEYS": "k"})])
    report = reput.erase(store, tmp_path / "erased", topics=["t"])
    assert report.records == 119
    with reput.open_store(tmp_path / "erased") as erased:
        bare = 0
        for number in range(119):
            message = erased.get_by_queue("t", 0, number)
            assert not any(message.body)
            assert message.body_crc_ok
            assert set(message.properties) <= {ERASED_PROPERTY}
            bare += ERASED_PROPERTY not in message.properties
    assert bare == report.bare > 0
    assert reput.check(tmp_path / "erased").is_valid


def test_bytes_after_the_end_of_the_log_are_zeros(tmp_path: Path) -> None:
    store = _store(
        tmp_path / "store",
        [_message("t", {"KEYS": "a"}), _message("t", {"KEYS": "b"})],
        b"private rest",
    )
    reput.erase(store, tmp_path / "erased", keys=["a"])
    (log,) = (tmp_path / "erased" / "commitlog").iterdir()
    assert b"private rest" not in log.read_bytes()


def test_a_query_is_one_of_rocketmq(tmp_path: Path) -> None:
    store = _store(
        tmp_path / "store",
        [
            _message("t", {"customer": name, "n": str(n)})
            for n, name in enumerate(("a", "b", "a", "it's"))
        ],
    )
    for query, count in (
        ("customer = 'a'", 2), ("customer = 'a' AND n > 1", 1), ("customer IS NULL", 0), ("customer = 'it''s'", 1),
        ("customer IN ('a', 'b')", 3), ("TRUE", 4),
    ):  # fmt: skip
        assert reput.erase(store, query=query, plan_only=True).records == count, query
    with pytest.raises(UsageError, match="SQL filter"):
        reput.erase(store, query="customer =", plan_only=True)


def test_it_refuses_in_one_line(golden: Golden, tmp_path: Path) -> None:
    store, out = tmp_path / "s", tmp_path / "out"
    copy_store(golden("lmq").path, store)
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "select the messages to erase"),
        ({"topics": ["RMQ_SYS_TRANS_OP_HALF_TOPIC"]}, "is an internal topic of the broker"),
        ({"keys": ["k"], "output": store / "in"}, "lies in the store"),
        ({"keys": ["k"], "output": tmp_path}, "exists"),
        ({"keys": ["k"], "output": None}, "output is missing"),
        ({"keys": ["k"], "signing_key": store / "checkpoint"}, "not a private key"),
    ]
    for given, words in cases:
        with pytest.raises(UsageError, match=words):
            reput.erase(store, **{"output": out, **given})
    (store / "other").write_bytes(b"x")
    with pytest.raises(UsageError, match="other may contain copies"):
        reput.erase(store, out, keys=["k"])
    (store / "other").unlink()
    log = sorted((store / "commitlog").iterdir())[0]
    data = bytearray(log.read_bytes())
    at = int.from_bytes(data[:4], "big")
    data[at : at + 20] = bytes(20)
    log.write_bytes(data)
    with pytest.raises(StoreError, match="unreadable range may contain"):
        reput.erase(store, out, keys=["k"])
    with pytest.raises(UsageError, match="DLedger"):
        reput.erase(golden("five_dledger").path, out, keys=["k"])
    assert not out.exists()
    assert not list(tmp_path.glob(".out*"))


def test_a_store_that_is_open_for_writing_is_refused(tmp_path: Path) -> None:
    with reput.open_store(tmp_path / "s", mode="rw", config=SMALL) as writable:
        writable.put(reput.Message("orders", b"body", ["customer-65"]))
        with pytest.raises(UsageError, match="owns this store"):
            reput.erase(tmp_path / "s", tmp_path / "out", keys=["customer-65"])


def test_the_record_is_signed_and_has_neither_keys_nor_bodies(
    golden: Golden, tmp_path: Path
) -> None:
    key = tmp_path / "key.pem"
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True)
    store = golden("orders").path
    report = reput.erase(
        store, tmp_path / "out", topics=["orders"], keys=["customer-48"], reason="request 17", by="someone",
        signing_key=key,
    )  # fmt: skip
    stored = Path(report.audit).read_bytes()
    assert b"customer-48" not in stored
    erasure, raw, signature = decode_stored(stored)
    assert (erasure.by, erasure.reason, erasure.id) == ("someone", "request 17", report.id)
    assert signature is not None
    public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature.public_key))
    public.verify(bytes.fromhex(signature.ed25519), raw)
    assert json.dumps(json.loads(stored)["erasure"], separators=(",", ":")).encode() == raw
    with reput.open_store(store) as before:
        for record in erasure.records[:20]:
            assert (
                hashlib.sha256(before.get_record(record.physical_offset)).hexdigest()
                == record.sha256
            )


def test_an_erased_store_is_opened_and_written(golden: Golden, tmp_path: Path) -> None:
    report = reput.erase(
        golden("orders").path, tmp_path / "out", topics=["orders"], keys=["customer-48"]
    )
    with reput.open_store(tmp_path / "out", mode="rw") as store:
        assert store.recovery.is_clean
        assert not store.recovery.damage
        store.put(reput.Message("orders", b"new", ["customer-48"]))
        store.wait_dispatched()
        assert [one.body for one in store.query("orders", "customer-48").messages] == [b"new"]
    assert report.records
    assert reput.check(tmp_path / "out").is_valid


def test_the_command_prints_a_plan_and_then_erases(
    golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, out = str(golden("orders").path), tmp_path / "out"
    asked = ["erase", store, "--topic", "orders", "--key", "customer-48"]
    assert main([*asked, "--plan"]) == 5  # a warning: other topics have messages with this key
    assert "would be erased; nothing was changed" in capsys.readouterr().out
    assert not out.exists()
    assert main([*asked, "--output", str(out), "--format", "json"]) == 5
    assert json.loads(capsys.readouterr().out)["is_done"] is True
    assert main(["erase", store, "--key", "no such key", "--output", str(tmp_path / "none")]) == 1
    assert not (tmp_path / "none").exists()
    remove_tree(out)


def test_other_messages_with_an_erased_key_or_body_are_reported(tmp_path: Path) -> None:
    body = b"the body of customer nobody-17"
    store = _store(
        tmp_path / "store",
        [
            _message("orders", {"KEYS": "order-17", "UNIQ_KEY": "ID17"}, body),
            _message("orders", {"KEYS": "order-18"}, b"see order-17, please"),
            _message("orders", {"KEYS": "order-19"}, b"see order-171"),
            _message("mail", {"KEYS": "x", "about": "ID17"}, b""),
            _message("mail", {"KEYS": "y"}, zlib.compress(b"copy: " + body), sys_flag=1),
        ],
    )
    plan = reput.erase(store, keys=["order-17"], plan_only=True)
    assert [(one.topic, one.records) for one in plan.mentions] == [("mail", 2), ("orders", 1)]
    assert not plan.is_complete
    assert "contain an erased key or body and would stay" in str(plan)
    assert main(["erase", str(store), "--key", "order-17", "--plan"]) == 5
    assert main(["erase", str(store), "--key", "order-19", "--plan"]) == 0


def test_rows_of_lake_tables_are_counted(golden: Golden, tmp_path: Path) -> None:
    store = golden("orders").path
    tables = {to: tmp_path / to for to in ("parquet", "delta")}
    for to, table in tables.items():
        reput.export(store, table, to=to)
    reput.export(
        store, tmp_path / "narrow", request=ExportRequest(columns=("topic", "physical_offset"))
    )
    reput.export(store, tmp_path / "bodies", request=ExportRequest(columns=("body",)))
    given = [*tables.values(), tmp_path / "narrow"]
    report = reput.erase(
        store, topics=["orders"], keys=["customer-48"], plan_only=True, tables=list(map(str, given))
    )
    assert [one.rows for one in report.tables] == [report.records] * 3
    assert "delete them there" in str(report)
    with pytest.raises(UsageError, match="cannot be compared"):
        reput.erase(store, keys=["customer-48"], plan_only=True, tables=[str(tmp_path / "bodies")])
    with pytest.raises(UsageError, match="nothing was exported there"):
        reput.erase(store, keys=["customer-48"], plan_only=True, tables=[str(tmp_path)])


def test_an_erased_store_is_served(golden: Golden, tmp_path: Path) -> None:
    report = reput.erase(
        golden("orders").path, tmp_path / "out", topics=["orders"], keys=["customer-48"]
    )
    with serving(tmp_path / "out") as server, Client(server.address) as client:
        assert not messages(client.query("orders", "customer-48").body)
        pulled, erased = 0, 0
        with reput.open_store(tmp_path / "out") as store:
            queues = [queue_id for topic, queue_id in store.list_queues() if topic == "orders"]
            end = sum(store.max_queue_offset("orders", queue_id) for queue_id in queues)
        for queue_id in queues:
            offset = 0
            while (answer := client.pull("orders", queue_id, offset)).code == ResponseCode.SUCCESS:
                for one in messages(answer.body):
                    assert one.queue_offset == offset
                    offset += 1
                    erased += ERASED_PROPERTY in one.properties
            pulled += offset
        assert (pulled, erased) == (end, report.records)
