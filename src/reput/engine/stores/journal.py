"""Record in a file the reports of an operation over many stores, so that the operation can be resumed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from reput.base import Closing, Report, Severity
from reput.engine.stores.named_stores import NamedStore
from reput.errors import StoreNotFoundError, UsageError
from reput.format.untrusted_json import parse_json
from reput.io import DISK, FileReader, FileWriter, locked

_SCHEMA = 2
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


class Journal(Closing):
    """A file of JSON lines: a header with the operation and its options, then one line per finished store.

    Use a Journal as a context manager. Only one process can have the file open. If a killed process has left an
    incomplete last line, the line is overwritten.
    """

    def __init__(
        self, path: str | PathLike[str], operation: str, options: Mapping[str, Any]
    ) -> None:
        """Open or create the file.

        Raises StoreLockedError, StoreAccessError, and UsageError if the file belongs to another operation.
        """
        self._path = fspath(path)
        # Omit callables: their repr has an address, which differs in each process.
        plain = {
            name: _option_text(name, value)
            for name, value in options.items()
            if not callable(value)
        }
        header = json.dumps(
            {"schema": _SCHEMA, "operation": operation, "options": plain}, sort_keys=True
        )
        self._reports: dict[tuple[str, str, str], KeptReport] = {}
        self._end = 0
        with ExitStack() as stack:
            # Lock the file first. Otherwise, two commands that run at once would overwrite each other's reports.
            is_used = "another command is using this file"
            stack.enter_context(DISK.writing_to(self._path))
            stack.enter_context(locked(Path(self._path), is_used, ["resume"]))
            self._load(header)
            self._lock = stack.pop_all()

    def close(self) -> None:
        """Release the file."""
        self._lock.close()

    def _load(self, header: str) -> None:
        try:
            data = FileReader.content_of(self._path, _MOST_BYTES)
        except StoreNotFoundError:
            data = b""
        # A line without a line feed was not written completely.
        whole = data[: data.rfind(b"\n") + 1]
        first, _, lines = whole.partition(b"\n")
        # Accept a file with only a part of the header: a process was killed while it wrote the first line.
        if first != header.encode() and not header.encode().startswith(data):
            raise UsageError(
                f"resume: {self._path} belongs to another operation or other options; choose "
                f"another file",
                arguments=["resume"],
            )
        for number, line in enumerate(lines.splitlines(), 2):
            self._read(number, line)
        self._end = len(whole)
        if len(data) > len(whole):
            # Remove the incomplete last line: `FileWriter` truncates the file to `self._end` bytes when it opens it.
            with FileWriter(Path(self._path), self._end):
                pass
        if not whole:
            self._append(header)

    def _read(self, number: int, line: bytes) -> None:
        try:
            fields = parse_json(line)
            worst = None if fields["severity"] is None else Severity(fields["severity"])
            report = KeptReport(
                fields["headline"], fields["report"], fields["is_complete"] is True, worst
            )
            self._reports[fields["store"], fields["path"], fields["settings"]] = report
        except (ValueError, KeyError, TypeError):
            raise UsageError(
                f"resume: line {number} of {self._path} is not the report of a store; choose another file",
                arguments=["resume"],
            ) from None

    def report_of(self, store: NamedStore, output: str) -> KeptReport | None:
        """Return the report that an earlier run with the same settings and output has recorded for a store, or None.

        `output` is the file or folder that the operation writes for the store.
        """
        return self._reports.get((store.name, store.path, _settings_of(store, output)))

    def add(self, store: NamedStore, output: str, report: Report) -> None:
        """Append the report of a store. Raises StoreAccessError."""
        fields = {
            "store": store.name, "path": store.path, "settings": _settings_of(store, output),
            "headline": report.headline, "severity": report.severity,
            "is_complete": report.is_complete, "report": report.as_dict(),
        }  # fmt: skip
        self._append(json.dumps(fields))

    def _append(self, line: str) -> None:
        data = line.encode() + b"\n"
        with FileWriter(Path(self._path)) as file:
            file.write(data, self._end)
        self._end += len(data)


def _option_text(name: str, value: object) -> str:
    """Return an option as text. Options of object storage may be secret, so only their digest is kept."""
    return _digest(value) if name == "storage_options" and value else repr(value)


def _settings_of(store: NamedStore, output: str) -> str:
    return _digest(
        (sorted(store.options.items()), store.log_paths, store.config, store.archive, output)
    )


def _digest(value: object) -> str:
    return sha256(repr(value).encode("utf-8", "surrogateescape")).hexdigest()
