"""Record the answers of an operation over many stores in a file, so that it can be resumed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from reput.errors import StoreNotFoundError, UsageError
from reput.files.reader import read_file
from reput.files.writer import FileWriter
from reput.findings import Severity
from reput.notebook import Report

_SCHEMA = 1
_MOST_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, repr=False)
class KeptReport(Report):
    """A report that was read from a journal. It has only the headline and the data."""

    text: str
    data: Mapping[str, Any]
    complete: bool
    worst: Severity | None

    @property
    def headline(self) -> str:
        return self.text

    @property
    def is_complete(self) -> bool:
        return self.complete

    @property
    def is_valid(self) -> bool:
        return self.worst is None

    @property
    def severity(self) -> Severity | None:
        return self.worst

    def lines(self) -> Iterator[str]:
        yield self.text

    def as_dict(self) -> dict[str, Any]:
        return dict(self.data)


class Journal:
    """A file of JSON lines: a header with the operation and its options, then one line per finished store.

    A killed process may leave an incomplete last line, which is overwritten.
    """

    def __init__(
        self, path: str | PathLike[str], operation: str, options: Mapping[str, Any]
    ) -> None:
        """Open or create the file. Raises UsageError if it belongs to another operation, StoreAccessError."""
        self._path = fspath(path)
        # The repr of a callable has an address, which differs in each process.
        plain = {name: repr(one) for name, one in sorted(options.items()) if not callable(one)}
        header = json.dumps({"schema": _SCHEMA, "operation": operation, "options": plain})
        self._known: dict[tuple[str, str], KeptReport] = {}
        self._end = 0
        try:
            data = read_file(self._path, _MOST_BYTES)
        except StoreNotFoundError:
            data = b""
        # A line without a line feed was not written completely.
        whole = data[: data.rfind(b"\n") + 1]
        first, _, lines = whole.partition(b"\n")
        if data and first != header.encode():
            raise UsageError(
                f"resume {self._path}: belongs to another operation or other options; choose "
                f"another file",
                arguments=["resume"],
            )
        for number, line in enumerate(lines.splitlines(), 2):
            self._read(number, line)
        self._end = len(whole)
        if len(data) > len(whole):
            with FileWriter(Path(self._path), self._end):
                pass  # Opening with this size truncates the file.
        if not whole:
            self._append(header)

    def _read(self, number: int, line: bytes) -> None:
        try:
            kept = json.loads(line)
            worst = None if kept["severity"] is None else Severity(kept["severity"])
            report = KeptReport(
                kept["headline"], kept["report"], kept["is_complete"] is True, worst
            )
            self._known[kept["store"], kept["path"]] = report
        except (ValueError, KeyError, TypeError):
            raise UsageError(
                f"resume {self._path}: line {number} is not an answer; choose another file",
                arguments=["resume"],
            ) from None

    def report_of(self, store: str, path: str) -> KeptReport | None:
        """Return the recorded result of a store."""
        return self._known.get((store, path))

    def add(self, store: str, path: str, report: Report) -> None:
        """Append an answer. Raises StoreAccessError."""
        fields = {
            "store": store, "path": path, "headline": report.headline, "severity": report.severity,
            "is_complete": report.is_complete, "report": report.as_dict(),
        }  # fmt: skip
        self._append(json.dumps(fields))

    def _append(self, line: str) -> None:
        data = line.encode() + b"\n"
        with FileWriter(Path(self._path)) as file:
            file.write(data, self._end)
        self._end += len(data)
