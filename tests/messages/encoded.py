"""Bodies in Avro, as producers encode them."""

import io
from typing import Any

import fastavro


def avro(schema: Any, value: Any, number: int | None = None) -> bytes:
    """A record in binary encoding, after the header of Confluent's serializers if it has an id."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return framed(number, stream.getvalue())


def framed(number: int | None, data: bytes) -> bytes:
    return data if number is None else b"\0" + number.to_bytes(4, "big") + data


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    """Return a record's schema."""
    return {
        "type": "record", "name": "Order", "namespace": "shop",
        "fields": [{"name": name, "type": kind} for name, kind in fields],
    }  # fmt: skip
