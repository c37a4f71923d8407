"""Define `reput.inspect`, which describes a store, or a single file of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from os import PathLike
from typing import Any

from reput.base import Finding, Report, StoreConfig, checked
from reput.engine.stores import takes_stores
from reput.wings.inspect.inspect_text import inspection_lines, title
from reput.wings.inspect.inspection import Inspection, queue_at
from reput.wings.inspect.inspection import inspect as inspect_path


@dataclass(frozen=True, slots=True, repr=False)
class InspectReport(Report):
    """The description of a store, or of one of its files. The class of `found` depends on the kind of file."""

    found: Inspection

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(self.found.findings)

    @property
    def is_valid(self) -> bool:
        """Return whether there is no damage."""
        return not any(finding.is_wrong for finding in self.found.findings)

    @property
    def headline(self) -> str:
        return title(self.found)

    def lines(self) -> Iterator[str]:
        return inspection_lines(self.found)

    def as_dict(self) -> dict[str, Any]:
        named: dict[str, Any] = _named(self.found)
        return named


@takes_stores
@checked
def inspect(
    path: str | PathLike[str],
    *,
    config: StoreConfig | None = None,
    hash_slots: int | None = None,
    index_items: int | None = None,
    queue: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> InspectReport:
    """Describe a store by names and headers only, or a single file of a store by its whole content.

    Args:
        path: A store, a file of a store, or a URL of these.
        config: The broker's settings.
        hash_slots: Number of slots of an IndexFile; by default derived from the file.
        index_items: Number of items of an IndexFile; by default derived from the file.
        queue: A queue of the store to describe instead, as "TOPIC/QUEUE".
        storage_options: Options of the URL's file system.

    Raises:
        StoreNotFoundError, StoreAccessError, FormatError, UsageError.
        MessageNotFoundError: the store has no such queue.
    """
    if queue is not None:
        with queue_at(path, queue, config, storage_options) as (_, inspection):
            assert inspection is not None
            return InspectReport(inspection)
    return InspectReport(inspect_path(path, config, hash_slots, index_items, storage_options))


def _named(value: Any) -> Any:
    """Convert a value for JSON. Named tuples become objects, so that all fields have names."""
    if isinstance(value, Finding):
        return value.as_json()
    if is_dataclass(value):
        return {field.name: _named(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return value._asdict()
    if isinstance(value, dict):
        return {name: _named(item) for name, item in value.items()}
    return [_named(item) for item in value] if isinstance(value, list | tuple) else value
