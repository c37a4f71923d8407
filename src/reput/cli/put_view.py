"""Print the progress and the result of `reput put`."""

from __future__ import annotations

import os
import stat
from typing import Any, BinaryIO

from reput.base import counted, format_time
from reput.cli.progress import Bars
from reput.engine.messages import LinesReport
from reput.format.commit_log import MessageExt
from reput.format.message_id import encode_offset_id
from reput.format.properties import UNIQ_KEY

_LABEL_WIDTH = 17


class PutProgress(Bars):
    """Progress of `reput put`: message count and bytes per second, and a bar if the input is a file.

    An instance is the progress callback of a LinesPut.
    """

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__(transient=True)
        self._size = _size(stream)
        self._task = self._bars.add_task("opening the store", total=None, bytes=True)

    def __call__(self, done_bytes: int, report: LinesReport) -> None:
        described = counted(report.messages, "message")
        self._bars.update(self._task, description=described, completed=done_bytes, total=self._size)


def _size(stream: BinaryIO) -> int | None:
    status = os.fstat(stream.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def lines_fields(report: LinesReport, end_offset: int) -> dict[str, Any]:
    """Return the summary of an import as JSON fields."""
    return {
        "messages": report.messages,
        "skipped": report.skipped,
        "seconds": round(report.seconds, 3),
        "first_physical_offset": report.first_offset,
        "last_physical_offset": report.last_offset,
        "end_offset": end_offset,
    }


def lines_text(report: LinesReport, end_offset: int) -> str:
    """Return the summary of an import as text."""
    rate = report.messages / report.seconds if report.seconds else 0.0
    lines = [f"Put {count_in_words(report)} in {report.seconds:,.1f} s ({rate:,.0f}/s)"]
    if report.first_offset is not None:
        lines.append(f"  first at      {report.first_offset}")
        lines.append(f"  last at       {report.last_offset}, the log ends at {end_offset}")
    if report.skipped:
        lines.append(f"  skipped       {counted(report.skipped, 'line')}")
    return "\n".join(lines)


def count_in_words(report: LinesReport) -> str:
    return counted(report.messages, "message")


def message_place(message: MessageExt) -> dict[str, Any]:
    """Return the ids and offsets of a message that was put. docs/message-json.md defines the names."""
    return {
        "message_id": encode_offset_id(message.store_host, message.physical_offset),
        "unique_key": message.properties.get(UNIQ_KEY),
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "store_timestamp": message.store_timestamp,
    }


def message_place_text(message: MessageExt) -> str:
    """Return the text for a message that was put: its ids and offsets, in the form of `reput show`."""
    place = message_place(message)
    rows = (
        ("topic", message.topic),
        ("queue", f"{message.queue_id}, entry {message.queue_offset:,}"),
        ("physical offset", str(message.physical_offset)),
        ("message id", place["message_id"]),
        ("unique key", place["unique_key"] or "-"),
        ("stored", format_time(message.store_timestamp)),
    )
    return "\n".join(f"{label:<{_LABEL_WIDTH}}{value}" for label, value in rows)
