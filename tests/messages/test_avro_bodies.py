"""Avro bodies become the values that their producer wrote; for other bodies the reason is reported."""

import json
import pickle
import socket
import threading
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.errors import StoreUnreachableError, UsageError
from reput.wings.lakes.body_decoders import BodyDecoder
from reput.wings.lakes.body_shape import BodyShape
from reput.wings.lakes.decoding import MOST_BODY_BYTES, decode_bodies, open_decoder
from reput.wings.lakes.http_json import HttpService
from reput.wings.lakes.parsed_bodies import ParsedBodies
from tests.messages.encoded import avro, framed, record
from tests.messages.registry import running_registry

LONG, TEXT = "long", "string"


def decoder_of(folder: Path, schema: Any) -> BodyDecoder:
    path = folder / "schema.avsc"
    path.write_text(schema if isinstance(schema, str) else json.dumps(schema))
    return open_decoder(f"avro:{path}")


def decoded(
    decoder: BodyDecoder, *bodies: bytes | None, is_permissive: bool = False
) -> ParsedBodies:
    shape = BodyShape.of_type(pa.struct(list(decoder.fields(bodies).schema)))
    array = pa.array(bodies, pa.binary())
    return decode_bodies(array, shape, decoder, is_permissive=is_permissive)


EVERY_TYPE = record(
    ("id", LONG), ("note", ["null", TEXT]), ("few", "int"), ("ratio", "float"), ("price", "double"),
    ("paid", "boolean"), ("raw", "bytes"), ("hash", {"type": "fixed", "name": "Hash", "size": 2}),
    ("total", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}),
    ("at", {"type": "long", "logicalType": "timestamp-millis"}),
    ("day", {"type": "int", "logicalType": "date"}),
    ("uid", {"type": "string", "logicalType": "uuid"}),
    ("state", {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}),
    ("items", {"type": "array", "items": record(("sku", TEXT), ("n", "int")) | {"name": "Item"}}),
    ("labels", {"type": "map", "values": LONG}), ("either", ["null", "int", TEXT]),
    ("number", ["int", "double"]), ("nothing", "null"),
)  # fmt: skip
VALUES = {
    "id": 2**40, "note": "täst", "few": -3, "ratio": 0.5, "price": 1.1, "paid": True, "raw": b"\0\xff", "hash": b"ab",
    "total": Decimal("12.50"), "at": datetime(2026, 1, 1, tzinfo=UTC), "day": date(2026, 1, 2), "uid": UUID(int=5),
    "state": "PAID", "items": [{"sku": "a", "n": 1}], "labels": {"x": 7}, "either": "z", "number": 3, "nothing": None,
}  # fmt: skip


def test_every_type_of_a_schema_has_a_column(tmp_path: Path) -> None:
    decoder = decoder_of(tmp_path, EVERY_TYPE)
    found = decoded(decoder, avro(EVERY_TYPE, VALUES), None)
    expected: dict[str, Any] = VALUES | {
        "uid": str(UUID(int=5)), "labels": [{"key": "x", "value": 7}], "either": '"z"', "number": 3.0,
    }  # fmt: skip
    del expected["nothing"]
    assert found.values.to_pylist() == [expected, None]
    assert found.misfits == {}
    assert decoder.fields(()).notes == (
        "either has several types, so it becomes JSON in a string",
        "nothing has no values, so it is omitted",
    )


def test_a_decoder_can_be_sent_to_another_process(tmp_path: Path) -> None:
    decoder = decoder_of(tmp_path, EVERY_TYPE)
    body = avro(EVERY_TYPE, VALUES)
    assert pickle.loads(pickle.dumps(decoder)).decode(body) == decoder.decode(body)


def test_a_body_may_have_the_header_of_a_single_object(tmp_path: Path) -> None:
    schema = record(("id", LONG))
    decoder = decoder_of(tmp_path, schema)
    from fastavro.schema import fingerprint, to_parsing_canonical_form

    header = b"\xc3\x01" + bytes.fromhex(
        fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO")
    )
    assert decoder.decode(header + avro(schema, {"id": 5})) == {"id": 5}
    assert (
        fingerprint('"int"', "CRC-64-AVRO") == "8f5c393f1ad57572"
    )  # Avro's own test vector, in little-endian


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the body is shorter than its Avro record"),
        (b"\x02\x0aab", "the body is shorter than its Avro record"),
        (b"\x02\x02a!", "bytes follow the body's Avro record: 1"),
        (b"\x02\x02\xff", "the body is not a record of its Avro schema: 'utf-8' codec"),
        (b"\x02\x03a", "the body is shorter than its Avro record"),  # a negative length
    ],
)
def test_a_body_that_is_no_record_says_why(tmp_path: Path, body: bytes, reason: str) -> None:
    decoder = decoder_of(tmp_path, record(("id", LONG), ("name", TEXT)))
    found = decoded(decoder, b"\x02\x02a", body)
    assert found.values.to_pylist() == [{"id": 1, "name": "a"}, None]
    assert (found.reasons[1].as_py() or "").startswith(reason)


@given(st.binary(max_size=60))
def test_no_bytes_are_more_than_a_misfit(
    tmp_path_factory: pytest.TempPathFactory, body: bytes
) -> None:
    decoder = decoder_of(tmp_path_factory.getbasetemp(), EVERY_TYPE)
    found = decoded(decoder, body)
    assert (found.values[0].as_py() is None) == (0 in found.misfits)


LINKED = record(("next", ["null", "shop.Order"]))
HUGE: dict[str, Any] = record(("x", LONG))
for _level in range(12):
    HUGE = record(*((f"f{n}", HUGE if n == 0 else f"shop.L{_level}") for n in range(3))) | {
        "name": f"L{_level + 1}"
    }
    HUGE["fields"][0]["type"]["name"] = f"L{_level}"


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("{", "not an Avro schema"),
        ('"long"', "not the schema of a record with fields"),
        ({"type": "record", "name": "R", "fields": []}, "a record with fields"),
        (record(("a", "nonsense")), "not an Avro schema"),
        (LINKED, "shop.Order contains itself"),
        (
            record(("a", {"type": "array", "items": "null"})),
            "a: an array whose values take no bytes",
        ),
        (record(("a", LONG), ("A", LONG)), "differ only in case"),
        (HUGE, "more than 1,000 fields"),
    ],
)
def test_a_schema_that_no_table_can_have_is_refused(
    tmp_path: Path, schema: Any, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        decoder_of(tmp_path, schema)


OLD, NEW = (
    record(("id", "int"), ("name", TEXT)),
    record(("name", TEXT), ("id", LONG), ("tip", LONG)),
)


def test_the_ids_of_bodies_lead_to_the_schemas_of_a_registry() -> None:
    with running_registry() as registry:
        registry.add(1, OLD)
        registry.add(7, NEW)
        registry.add(8, 'syntax = "proto3";', schemaType="PROTOBUF")
        decoder = open_decoder(f"avro:registry:{registry.url}")
        bodies = [
            avro(NEW, {"name": "new", "id": 2**40, "tip": 3}, 7),
            avro(OLD, {"id": 1, "name": "old"}, 1),
            framed(9, b"x"), framed(8, b"x"), b"\0\0\0", b"\x01\0\0\0\x07x", framed(1, b"\x02"),
        ]  # fmt: skip
        found = decoded(decoder, *bodies, *bodies)
        assert found.values.to_pylist()[:2] == [
            {"id": 2**40, "name": "new", "tip": 3},
            {"id": 1, "name": "old", "tip": None},
        ]
        assert found.reasons.to_pylist()[2:7] == [
            "the registry has no schema with the body's id: 9",
            "a schema of the registry is PROTOBUF, not Avro",
            "the body does not begin with a zero and a schema id",
            "the body does not begin with a zero and a schema id",
            "the body is shorter than its Avro record",
        ]
        assert sorted(registry.requests) == [f"/schemas/ids/{n}" for n in (1, 7, 8, 9)]


def test_schemas_may_refer_to_others() -> None:
    item = record(("sku", TEXT)) | {"name": "Item"}
    order = record(("items", {"type": "array", "items": "shop.Item"}))
    with running_registry() as registry:
        reference = {"name": "shop.Item", "subject": "item/value", "version": 2}
        registry.add(3, order, references=[reference])
        registry.answers["/subjects/item%2Fvalue/versions/2"] = {"schema": json.dumps(item)}
        decoder = open_decoder(f"avro:registry:{registry.url}")
        whole = record(("items", {"type": "array", "items": item}))
        found = decoded(decoder, avro(whole, {"items": [{"sku": "a"}]}, 3))
        assert found.values.to_pylist() == [{"items": [{"sku": "a"}]}]


def test_the_types_of_a_table_hold_for_schemas_that_come_later() -> None:
    other = record(("id", TEXT), ("name", TEXT))
    with running_registry() as registry:
        registry.add(1, OLD)
        registry.add(2, other)
        decoder = open_decoder(f"avro:registry:{registry.url}")
        bodies = [avro(OLD, {"id": 1, "name": "a"}, 1), avro(other, {"id": "x", "name": "b"}, 2)]
        fields = decoder.fields(bodies)
        assert fields.schema.field("id").type == pa.int32()
        assert fields.notes == (f"{registry.url}: schema 2: id is int32, not string",)
        strict = decoded(decoder, *bodies)
        assert strict.values.to_pylist() == [{"id": 1, "name": "a"}, None]
        assert strict.reasons.to_pylist() == [None, "id is a text, not int32"]
        kept = decoded(decoder, *bodies, is_permissive=True)
        assert kept.values.to_pylist() == [{"id": 1, "name": "a"}, {"id": None, "name": "b"}]


def test_a_passing_error_of_a_registry_is_tried_again_and_a_lasting_one_stops() -> None:
    with running_registry() as registry:
        registry.add(1, OLD)
        decoder = open_decoder(f"avro:registry:{registry.url}".replace("//", "//user:p%40ss@"))
        service = decoder._registry._service  # type: ignore[attr-defined]
        pauses: list[float] = []
        service._pause = pauses.append
        registry.faults = [500, 429]
        body = avro(OLD, {"id": 1, "name": "a"}, 1)
        assert decoder.decode(body) == {"id": 1, "name": "a"}
        assert len(pauses) == 2
        assert registry.passwords == {"Basic dXNlcjpwQHNz"}
        for status in (401, 301):
            registry.faults = [status]
            with pytest.raises(
                StoreUnreachableError, match=f"/schemas/ids/2: HTTP status {status}"
            ):
                decoder.decode(framed(2, b""))
        assert "/elsewhere" not in registry.requests
        for strange in (b"<html>", b"[]", b'{"schema":1}'):
            registry.answers["/schemas/ids/2"] = strange
            with pytest.raises(
                StoreUnreachableError, match=r"not JSON|not the answer of a schema registry"
            ):
                decoder.decode(framed(2, b""))
    with pytest.raises(StoreUnreachableError) as gone:
        decoder.decode(framed(2, b""))
    assert "p@ss" not in str(gone.value)
    assert "p%40ss" not in str(gone.value)


def test_a_registry_is_not_asked_for_any_number_of_unknown_ids() -> None:
    with running_registry() as registry:
        decoder = open_decoder(f"avro:registry:{registry.url}")
        registry_of: Any = decoder
        registry_of._registry._unknown = set(range(10, 1010))
        with pytest.raises(
            ValueError, match=r"no schema for 1,000 other ids, so .* the body's id: 5"
        ):
            decoder.decode(framed(5, b""))
        assert registry.requests == []


def test_a_body_that_would_fill_the_memory_is_a_misfit(tmp_path: Path) -> None:
    item = {"type": "record", "name": "I", "fields": [{"name": "f", "type": ["null", "long"]}]}
    decoder = decoder_of(tmp_path, record(("items", {"type": "array", "items": item})))
    count = MOST_BODY_BYTES
    bomb = varint(count) + bytes(count) + b"\0"
    found = decoded(decoder, bomb, varint(1) + b"\0\0")
    assert found.values.to_pylist() == [None, {"items": [{"f": None}]}]
    assert found.reasons[0].as_py() == f"the body has more than {count:,} bytes: {len(bomb)}"


def test_many_bodies_are_converted_a_few_at_a_time(tmp_path: Path) -> None:
    decoder = decoder_of(tmp_path, record(("name", TEXT)))
    texts = [str(number) * 200_000 for number in range(9)]
    bodies = [varint(len(text)) + text.encode() for text in texts]
    assert decoded(decoder, *bodies, b"").values.to_pylist() == [
        *({"name": one} for one in texts),
        None,
    ]


def test_numbers_of_bytes_that_no_body_has_are_misfits(tmp_path: Path) -> None:
    decoder = decoder_of(
        tmp_path, record(("name", TEXT), ("ids", {"type": "array", "items": LONG}))
    )
    for hostile in (
        varint(1 << 62), b"\xff" * 9 + b"\x01", b"\xff" * 4096, b"\0" + varint(1 << 62), b"\0" + b"\x01" * 20,
    ):  # fmt: skip
        assert decoded(decoder, hostile).values.to_pylist() == [None]


@pytest.mark.parametrize(
    "text",
    [
        "avro:https://me:secret@host",
        "arvo:registry:https://me:secret@host",
        "proto:https://me:secret@host#M",
    ],
)
def test_no_error_shows_a_password(text: str) -> None:
    with pytest.raises(UsageError) as error:
        open_decoder(text)
    assert "https://***@host" in str(error.value)
    assert "secret" not in str(error.value)


def varint(number: int) -> bytes:
    """Return a number in Avro's encoding."""
    left, found = number << 1, b""
    while left > 127:
        left, found = left >> 7, found + bytes([left & 127 | 128])
    return found + bytes([left])


def test_a_registry_that_trickles_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        service = HttpService(
            f"http://127.0.0.1:{server.getsockname()[1]}",
            "body",
            timeout_s=0.1,
            pause=lambda s: None,
        )
        ended = threading.Event()

        def trickle() -> None:
            while not ended.is_set():
                connection, _ = server.accept()
                threading.Thread(target=drip, args=(connection,), daemon=True).start()

        def drip(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4000000\r\n\r\n")
                while not ended.wait(0.02):
                    connection.sendall(b" ")

        threading.Thread(target=trickle, daemon=True).start()
        try:
            with pytest.raises(StoreUnreachableError, match="schemas/ids/1"):
                service.get("schemas/ids/1")
        finally:
            ended.set()


def test_an_answer_without_an_end_is_not_read_to_its_end() -> None:
    with running_registry() as registry:
        registry.answers["/schemas/ids/1"] = b'{"schema": "' + bytes(5 << 20)
        with pytest.raises(StoreUnreachableError, match="more than 4,194,304 bytes"):
            HttpService(registry.url, "body").get("schemas/ids/1")
