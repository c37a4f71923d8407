"""A table partitioned by topic: every topic is read back unchanged, or the row is rejected with a reason."""

from dataclasses import replace
from pathlib import Path

import pytest

from reput.testing.builders import MESSAGE, write_log
from reput.wings.lakes.report import ExportReport
from tests.lakes.exporting import FORMATS, export, offsets, read_table

HIVES_NULL = "__HIVE_DEFAULT_PARTITION__"
TOO_LONG = "%" * 127
TOPICS = ("orders", "", HIVES_NULL, TOO_LONG, "a/b=c%", "orders")
SET_ASIDE = {"parquet": {"", HIVES_NULL, TOO_LONG}, "iceberg": set(), "delta": {""}}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    messages = [replace(MESSAGE, topic=topic, body=b'{"n":1}') for topic in TOPICS]
    return write_log(tmp_path / "store", messages)


def topics(folder: Path, layout: str, rejects: bool = False) -> dict[int, str]:
    table = read_table(folder, layout, rejects)
    return dict(zip(offsets(table), table["topic"].to_pylist(), strict=True))


@pytest.mark.every_case
@pytest.mark.parametrize("layout", FORMATS)
def test_every_topic_comes_back_as_it_was(store: Path, tmp_path: Path, layout: str) -> None:
    def exported() -> ExportReport:
        return export(store, tmp_path / "out", layout, partition_by=("topic",), incremental=True)

    report, aside = exported(), SET_ASIDE[layout]
    found = topics(tmp_path / "out", layout)
    refused = topics(tmp_path / "out", layout, rejects=True) if aside else {}
    together = found | refused
    assert [together[offset] for offset in sorted(together)] == list(TOPICS)
    assert set(refused.values()) == aside
    assert (report.rows, report.rejects) == (len(found), len(refused))
    assert not exported().committed


def test_why_a_row_was_set_aside_stands_beside_it(store: Path, tmp_path: Path) -> None:
    export(store, tmp_path / "out", partition_by=("topic",), columns=("key",))
    rows = read_table(tmp_path / "out", "parquet", rejects=True).to_pylist()
    assert set(rows[0]) == {"store", "topic", "physical_offset", "key", "reason"}
    reasons = {row["topic"]: row["reason"] for row in rows}
    null = "readers would take the folder of this topic for the folder of null values"
    assert reasons[""] == reasons[HIVES_NULL] == null
    assert reasons[TOO_LONG] == "the folder of this topic would have a name of more than 255 bytes"


def test_topics_and_bodies_are_set_aside_together(store: Path, tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text('{"n": "string"}')
    json_body = str(tmp_path / "schema.json")
    report = export(store, tmp_path / "out", partition_by=("topic",), json_body=json_body)
    assert (report.rows, report.rejects) == (0, len(TOPICS))
    rows = read_table(tmp_path / "out", "parquet", rejects=True).to_pylist()
    assert [row["topic"] for row in rows] == list(TOPICS)
    assert {row["body"] for row in rows} == {b'{"n":1}'}


def test_without_partitions_nothing_is_set_aside(store: Path, tmp_path: Path) -> None:
    assert export(store, tmp_path / "out").rejects == 0
    found = topics(tmp_path / "out", "parquet")
    assert [found[offset] for offset in sorted(found)] == list(TOPICS)
