"""The list of a message's fields agrees with the pages that describe them, and is the only place for a new column."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from reput.engine.messages.json_lines import _PutFields
from reput.format.message_fields import (
    CSV_NAMES,
    FIELDS,
    IGNORED,
    JSON_FIELDS,
    NAMED_FIELDS,
    PUT_NAMES,
    REQUIRED,
    MessageField,
)

CHECKOUT = Path(__file__).parents[2]
JSON_TYPES = {
    "text": "text", "host": "text", "texts": "list of texts", "map": "object of texts", "bytes": "text",
    "boolean": "true or false", "int32": "number", "int64": "number", "time": "number",
}  # fmt: skip
SPARK_TYPES = {
    "text": "string", "host": "string", "texts": "array", "map": "map", "bytes": "binary", "boolean": "boolean",
    "int32": "int", "int64": "bigint", "time": "timestamp",
}  # fmt: skip
# A column that a record has, but the table does not: its line is all that the table needs.
NEW_COLUMN = 'MessageField("body_crc", "int32", IGNORED, Place("record", BODY_CRC_POSITION)),'
PROBE = """
import json
from dataclasses import replace
import numpy as np
from reput.engine.messages import ALL_COLUMNS, decode_batch, log_lines, message_line
from reput.engine.messages.json_lines import read_message
from reput.format.commit_log import body_crc, decode, encode
from reput.format.message_fields import CSV_NAMES, PUT_NAMES
from reput.testing.builders import MESSAGE
record = encode(replace(MESSAGE, body_crc=body_crc(MESSAGE.body)))
data, at = np.frombuffer(bytearray(record), np.uint8), np.zeros(1, np.int64)
batch, _ = decode_batch(data, at)
line = message_line(decode(record))
(many,) = log_lines(data, at)
print(json.dumps({
    "column": batch.column("body_crc").to_pylist(), "type": str(ALL_COLUMNS.field("body_crc").type),
    "json": json.loads(line)["body_crc"], "lines": json.loads(bytes(many))["body_crc"],
    "put": read_message(line).topic, "known": "body_crc" in PUT_NAMES, "csv": "body_crc" in CSV_NAMES,
}))
"""


def rows_below(page: str, header: str) -> list[list[str]]:
    """Return the cells of each row of the tables with this header."""
    text = (CHECKOUT / "docs" / page).read_text(encoding="utf-8")
    tables = re.findall(re.escape(header) + r"\n\|[-|]+\|\n((?:\|[^\n]*\|\n)+)", text)
    assert tables
    return [
        [cell.strip() for cell in row.strip("|").split("|")]
        for table in tables
        for row in table.splitlines()
    ]


def is_put(field: MessageField) -> bool:
    return field.put != IGNORED


def test_the_page_on_json_lists_the_fields_in_order() -> None:
    documented = [
        (name.strip("`"), kind.removesuffix(" or null"))
        for name, kind, _ in rows_below("message-json.md", "| field | type | meaning |")
    ]
    fields = [
        NAMED_FIELDS["store"],
        *(field for field in JSON_FIELDS if field.name != "properties"),
    ]
    fields.remove(NAMED_FIELDS["body"])
    kinds = [(field.json_name, JSON_TYPES[field.type]) for field in fields]
    properties, body = NAMED_FIELDS["properties"], NAMED_FIELDS["body"]
    kinds[-1:-1] = [
        ("properties", "object of texts"),
        *((name, "text") for name in ("body", *body.forms)),
    ]
    kinds += [(name, "text") for name in properties.forms]
    assert documented == kinds


def test_the_page_on_the_table_lists_the_columns() -> None:
    documented: dict[str, str] = {}
    for names, kinds, _ in rows_below("spark-table.md", "| column | type | contents |"):
        columns, types = names.split(", "), kinds.split(", ")
        documented |= dict(
            zip(columns, types * len(columns) if len(types) == 1 else types, strict=len(types) > 1)
        )
    assert documented == {field.name: SPARK_TYPES[field.type] for field in FIELDS}


def test_a_put_has_the_defaults_of_the_list_and_of_its_page() -> None:
    fields = [field for field in JSON_FIELDS if is_put(field)]
    defaults = dict(
        zip(_PutFields.__struct_fields__[1:], _PutFields.__struct_defaults__, strict=True)
    )
    assert _PutFields.__struct_fields__[0] == "topic"
    assert NAMED_FIELDS["topic"].put == REQUIRED
    assert defaults == {
        name: field.put
        for field in fields
        if field.put != REQUIRED
        for name in (field.json_name, *field.forms)
    }
    zeros, *others = rows_below("message-json.md", "| field | default |")
    assert zeros == [
        ", ".join(
            f"`{field.name}`" for field in fields if field.put == 0 and field.put is not False
        ),
        "0",
    ]
    named = {name.strip("`") for names, _ in others for name in names.split(", ")}
    assert named == {"born_timestamp", "born_host", "properties", "unique_key", "tags", "keys"}


def test_the_page_on_json_names_what_a_put_ignores_and_the_columns_of_csv() -> None:
    text = " ".join((CHECKOUT / "docs" / "message-json.md").read_text(encoding="utf-8").split())
    ignored = text.partition("store time, so ")[2].partition(" (which is")[0]
    assert set(re.findall(r"`(\w+)`", ignored)) == {
        field.json_name for field in FIELDS if not is_put(field) and field.json_name in PUT_NAMES
    }
    columns = text.partition("print these columns: ")[2].partition(". ")[0]
    assert tuple(re.findall(r"`(\w+)`", columns)) == CSV_NAMES


def test_a_new_column_changes_one_module(tmp_path: Path) -> None:
    """Add a column, as docs/architecture.md says, in a copy of the source: table, JSON and put have it."""
    source, copy = CHECKOUT / "src" / "reput", tmp_path / "reput"
    for folder in (Path(), Path("format")):
        (copy / folder).mkdir()
        for path in (source / folder).iterdir():
            if path.name not in ("format", "message_fields.py"):
                (copy / folder / path.name).symlink_to(path)
    module = "format/message_fields.py"
    text = (source / module).read_text(encoding="utf-8")
    for before, line in (
        ('    MessageField("corrupt_reason"', f"    {NEW_COLUMN}\n"),
        ('        "prepared_transaction_offset", "body_crc_ok"', '        "body_crc",\n'),
        ("    BORN_HOST_POSITION,\n", "    BODY_CRC_POSITION,\n"),
    ):
        assert text.count(before) == 1
        text = text.replace(before, line + before)
    (copy / module).write_text(text, encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_DISABLE_JIT": "1"},
    )  # fmt: skip
    assert ended.stderr == ""
    found = json.loads(ended.stdout)
    crc = found["column"][0]
    assert found == {
        "column": [crc], "type": "int32", "json": crc, "lines": crc, "put": "T", "known": True, "csv": False,
    }  # fmt: skip
    assert crc
