"""One problem of a store, and its place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from reput.base.findings.kinds import Kind, Remedy, Severity
from reput.errors import CorruptMessageError, FormatError


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem and its place.

    Attributes:
        kind: The kind; `severity` and `remedy` follow from it.
        file: The file with the problem.
        detail: The specifics, in words.
        file_offset: Position in the file; None if the problem has no position.
        physical_offset: Offset in the CommitLog of the first lost byte; None if no byte is lost.
        length: Bytes lost, in the CommitLog or in the file; 0 if unknown or if no byte is lost.
        count: Number of similar findings, of which this one is the first; 1 if it is the only one.
        cost: Consequence of the problem, in words; empty if unknown.
        at_next_start: What a broker does about the problem at its next start, in words; empty if unknown.
    """

    kind: Kind
    file: str
    detail: str
    file_offset: int | None = None
    physical_offset: int | None = None
    length: int = 0
    count: int = 1
    cost: str = ""
    at_next_start: str = ""

    @classmethod
    def of_error(cls, kind: Kind, error: FormatError, remark: str = "") -> Finding:
        """Return the finding for an error about a file. `remark` is appended to the error's reason."""
        return cls(kind, error.path, f"{error.reason}{remark}", file_offset=error.offset)

    def as_error(self, advice: str = "", arguments: Iterable[str] = ()) -> CorruptMessageError:
        """Return an error with the content of the finding, for callers that cannot continue.

        Raises ValueError if the finding reports no lost bytes of the CommitLog.
        """
        return CorruptMessageError(
            self.file, self.file_offset or 0, f"{self._loss}{self.detail}{advice}", self.start,
            arguments=arguments,
        )  # fmt: skip

    @property
    def severity(self) -> Severity:
        return self.kind.severity

    @property
    def remedy(self) -> Remedy:
        return self.kind.remedy

    @property
    def is_wrong(self) -> bool:
        """Return True for a warning or damage, False for information (Severity.INFO)."""
        return self.severity is not Severity.INFO

    @property
    def start(self) -> int:
        """Return the physical offset of the first byte lost. Raises ValueError if no byte of the CommitLog is lost."""
        if self.physical_offset is None:
            raise ValueError(f"a finding without a physical offset: {self}")
        return self.physical_offset

    @property
    def stop(self) -> int:
        """Return the physical offset after the last byte lost. Raises ValueError if no byte of the log is lost."""
        return self.start + self.length

    def __str__(self) -> str:
        place = self.file if self.file_offset is None else f"{self.file}: offset {self.file_offset}"
        if self.physical_offset is not None and self.physical_offset != self.file_offset:
            place += f": physical offset {self.physical_offset}"
        total = f" ({self.count:,} in all)" if self.count > 1 else ""
        return f"{place}: {self._loss}{self.detail}{total}"

    @property
    def _loss(self) -> str:
        if not self.length:
            return ""
        return f"{self.length} {'byte' if self.length == 1 else 'bytes'} lost: "

    def as_json(self) -> dict[str, Any]:
        """Return all fields as values for json.dumps; every JSON output has findings in this form."""
        return {
            "kind": self.kind,
            "severity": self.severity,
            "file": self.file,
            "file_offset": self.file_offset,
            "physical_offset": self.physical_offset,
            "length": self.length,
            "count": self.count,
            "detail": self.detail,
            "cost": self.cost,
            "at_next_start": self.at_next_start,
            "remedy": self.remedy,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Finding:
        """Return the finding from the result of `as_json`. Raises KeyError for other values."""
        values = {field.name: stored[field.name] for field in fields(cls)}
        return cls(**{**values, "kind": Kind[stored["kind"].upper()]})
