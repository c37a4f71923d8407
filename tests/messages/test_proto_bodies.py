"""Protobuf bodies become the values that their producer wrote; for other bodies the reason is reported."""

import pickle
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.errors import UsageError
from reput.wings.lakes.decoding import open_decoder
from reput.wings.lakes.proto_bodies import ProtoDecoder
from tests.messages.test_avro_bodies import decoded

PROTO = """
syntax = "proto3"; package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
import "parts.proto";
message Order {
  int64 id = 1; string customer = 2; optional double price = 3; repeated Item items = 4;
  google.protobuf.Timestamp at = 5; map<string, int32> labels = 6; State state = 7; uint64 big = 8;
  bytes raw = 9; google.protobuf.StringValue note = 10; google.protobuf.Struct any = 11;
  Order parent = 12; oneof either { string text = 13; int32 number = 14; } float ratio = 15;
  message Line { bool paid = 1; } Line line = 16; Nothing nothing = 17;
}
message Nothing { }
enum State { NEW = 0; PAID = 1; }
"""
PARTS = 'syntax = "proto3"; package shop; message Item { string sku = 1; sint32 n = 2; }'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("proto")
    (found / "shop.proto").write_text(PROTO)
    (found / "parts.proto").write_text(PARTS)
    (found / "one.proto").write_text(
        'syntax = "proto2"; message M { required int32 a = 1; optional int32 b = 2; }'
    )
    return found


@pytest.fixture(scope="module")
def decoder(folder: Path) -> Any:
    return open_decoder(f"proto:{folder}/shop.proto#Order")


def message_of(decoder: ProtoDecoder, **values: Any) -> Any:
    return decoder._reader._type(**values)


def test_every_type_of_a_message_has_a_column(decoder: Any) -> None:
    message = message_of(
        decoder, id=7, customer="c", price=0.0, state=1, big=2**64 - 1, raw=b"\0\1", number=0,
        ratio=0.5, labels={"k": 9}, line={"paid": True}, parent={"id": 1},
    )  # fmt: skip
    message.items.add(sku="a", n=-4)
    message.at.FromJsonString("2026-01-01T00:00:00.5Z")
    message.note.value = ""
    message.any.update({"z": [True, None]})
    found = decoded(decoder, message.SerializeToString(), b"")
    full, empty = found.values.to_pylist()
    assert full == {
        "id": 7, "customer": "c", "price": 0.0, "items": [{"sku": "a", "n": -4}],
        "at": datetime(2026, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC), "labels": [{"key": "k", "value": 9}],
        "state": "PAID", "big": Decimal(2**64 - 1), "raw": b"\0\1", "note": "", "any": '{"z": [true, null]}',
        "parent": '{"id": "1"}', "text": None, "number": 0, "ratio": 0.5, "line": {"paid": True},
    }  # fmt: skip
    assert (empty["id"], empty["customer"], empty["price"], empty["items"], empty["line"]) == (
        0, "", None, [], None,
    )  # fmt: skip
    assert decoder.fields(()).notes == (
        "any has any type, so it becomes JSON in a string",
        "parent contains itself, so it becomes JSON in a string",
        "nothing has no values, so it is omitted",
    )


def test_a_state_that_the_schema_does_not_name_is_its_number(decoder: Any) -> None:
    assert decoder.decode(b"\x38\x05")["state"] == "5"


def test_a_decoder_can_be_sent_to_another_process(decoder: Any) -> None:
    body = message_of(decoder, id=5, customer="x").SerializeToString()
    assert pickle.loads(pickle.dumps(decoder)).decode(body) == decoder.decode(body)


def test_the_header_of_confluent_s_serializers_names_the_message(
    folder: Path, decoder: Any
) -> None:
    body = message_of(decoder, id=5).SerializeToString()
    assert decoder.decode(b"\0\0\0\0\7\0" + body)["id"] == 5
    nested = open_decoder(f"proto:{folder}/shop.proto#Order.Line")
    assert nested.decode(b"\0\0\0\0\7\4\0\0\x08\1") == {"paid": True}
    # Some serializers also count the generated type of the map's entries, which comes before Line.
    assert nested.decode(b"\0\0\0\0\7\4\0\2\x08\1") == {"paid": True}
    with pytest.raises(ValueError, match="another message type of the"):
        nested.decode(b"\0\0\0\0\7\0\x08\1")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"hello", "the body is not a Protobuf message"),
        (b'{"id":1}', "the body is not a Protobuf message"),
        (b"\x08", "the body is not a Protobuf message"),
        (b"\0\0\0\0\7" + b"\xff" * 20, "the body is not a Protobuf message"),
        (b"\xfa\x7f\x00", "the body has none of the fields of its Protobuf message type"),
        (
            b"\x2a\x0a\x08" + b"\xff" * 8 + b"\x7f",
            "the body has a value that fits no column",
        ),
    ],
)
def test_a_body_that_is_no_message_says_why(decoder: Any, body: bytes, reason: str) -> None:
    found = decoded(decoder, b"\x08\x01", body)
    assert found.values[0].as_py()["id"] == 1
    assert found.values[1].as_py() is None
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(found.reasons[1].as_py())


@given(st.binary(max_size=60))
def test_no_bytes_are_more_than_a_misfit(decoder: Any, body: bytes) -> None:
    found = decoded(decoder, body)
    assert (found.values[0].as_py() is None) == (0 in found.misfits)


def test_a_required_field_is_required(folder: Path) -> None:
    found = decoded(open_decoder(f"proto:{folder}/one.proto"), b"\x08\x01", b"\x10\x01")
    assert found.values.to_pylist() == [{"a": 1, "b": None}, None]
    assert found.reasons.to_pylist() == [None, "the Protobuf message lacks a required field: a"]


def test_descriptors_of_protoc_do_as_well_as_a_proto_file(
    folder: Path, decoder: Any, tmp_path: Path
) -> None:
    path = tmp_path / "shop.pb"
    path.write_bytes(decoder._descriptors)
    again = open_decoder(f"proto:{path}#shop.Order")
    assert again.fields(()).schema == decoder.fields(()).schema
    assert pa.types.is_struct(again.fields(()).schema.field("line").type)


def test_standard_files_may_be_missing_among_descriptors_and_others_not(
    decoder: Any, tmp_path: Path
) -> None:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    files = FileDescriptorSet.FromString(decoder._descriptors)
    path = tmp_path / "shop.pb"
    own = [file for file in files.file if not file.name.startswith("google/")]
    path.write_bytes(FileDescriptorSet(file=own).SerializeToString())
    assert open_decoder(f"proto:{path}#Order").decode(b"\x08\x01")["id"] == 1
    path.write_bytes(FileDescriptorSet(file=own[-1:]).SerializeToString())
    with pytest.raises(UsageError, match=r"the descriptor set is not complete: .*parts\.proto"):
        open_decoder(f"proto:{path}#Order")


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ("shop.proto", "FILE#TYPE; TYPE is one of: Order, Nothing"),
        ("shop.proto#Nope", "no message Nope; choose one of: shop.Order, shop.Order.Line"),
        ("shop.proto#Nothing", "shop.Nothing has no fields"),
        ("missing.proto#M", "cannot be read: No such file"),
        ("broken.proto#M", "broken.proto:1:1"),
        ("junk.pb#M", "not a .proto file, nor a set of descriptors"),
    ],
)
def test_a_message_that_cannot_be_had_is_refused(folder: Path, argument: str, reason: str) -> None:
    (folder / "broken.proto").write_text("nonsense {")
    (folder / "junk.pb").write_bytes(b"\xff\xff")
    with pytest.raises(UsageError, match=reason):
        open_decoder(f"proto:{folder}/{argument}")


def test_a_body_of_empty_messages_that_would_fill_the_memory_is_a_misfit(decoder: Any) -> None:
    items = b"\x22\x00" * 1_000_000
    found = decoded(decoder, items, b"\x22\x00")
    assert found.values[0].as_py() is None
    assert found.reasons[0].as_py() == "the lists of the body have more than 2,097,152 values"
    assert len(found.values[1].as_py()["items"]) == 1


def test_messages_inside_themselves_end_somewhere(decoder: Any) -> None:
    body = b""
    for _ in range(5_000):
        body = b"\x62" + varint(len(body)) + body
    assert decoded(decoder, body).reasons[0].as_py() == "the body is not a Protobuf message"


def varint(number: int) -> bytes:
    """Return a number in Protobuf's encoding."""
    found = b""
    while number > 127:
        number, found = number >> 7, found + bytes([number & 127 | 128])
    return found + bytes([number])
