"""Records of the trace topic in a trace: who sent and consumed the message, when, for how long, with what result."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reput
from reput.format.properties import TRACE_TOPIC
from reput.format.trace_record import trace_entries
from tests.cli.running import reput as run
from tests.small import SMALL_16K

PUB = "Pub 1700000000000 region PG orders M1 tagA p1 10.0.0.1:10911 7 3 0 0A true"
BEFORE = "SubBefore 1700000000100 region CG req-1 M1 0 p1"
AFTER = "SubAfter req-1 M1 12 true p1 0 1700000000112 CG"
OLD_AFTER = "SubAfter req-2 M1 40 false p1"
DECISION = "EndTransaction 1700000000200 region PG orders M1 tagA p1 10.0.0.1:10911 2 T1 COMMIT_MESSAGE false"


def body(*entries: str) -> bytes:
    return "".join(entry.replace(" ", "\x01") + "\x02" for entry in entries).encode()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with reput.open_store(tmp_path, "rw", config=SMALL_16K) as opened:
        opened.put(reput.Message("orders", b"x", keys=("p1",), properties={"UNIQ_KEY": "M1"}))
        for entries in ((PUB,), (BEFORE, OLD_AFTER), (AFTER, DECISION)):
            opened.put(reput.Message(TRACE_TOPIC, body(*entries), keys=("M1", "p1")))
    return tmp_path


def test_trace_records_belong_to_the_message_and_are_decoded(store: Path) -> None:
    report = reput.trace([store], key="p1")
    assert [event.life for event in report.life.events] == [1, 1, 1, 1]
    assert [str(event.role) for event in report.life.events] == ["message", *["trace"] * 3]
    texts = [reason.text for reason in report.life.reasons if reason.kind == "traced"]
    assert texts == [
        "Trace: producer group PG sent it at 2023-11-14T22:13:20Z in 3 ms, successfully.",
        "Trace: consumer group CG began to consume it at 2023-11-14T22:13:20Z.",
        "Trace: consumer group of unknown name consumed it in 40 ms, without success.",
        "Trace: consumer group CG consumed it in 12 ms, successfully; it ended at 2023-11-14T22:13:20Z.",
        "Trace: producer group PG decided its transaction at 2023-11-14T22:13:20Z: COMMIT_MESSAGE.",
    ]


def test_the_command_prints_them(store: Path) -> None:
    out = run("trace", store, "--key", "p1").out
    assert "producer group PG sent it" in out
    assert "message 2" not in out


@given(st.binary(max_size=300))
def test_any_body_is_decoded_or_skipped(data: bytes) -> None:
    list(trace_entries(data))
    list(trace_entries(b"Pub\x01" * 3 + data + b"\x01" * 14 + b"\x02" + data))
