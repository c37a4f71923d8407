"""Whether a store is still the one whose messages a table has."""

from __future__ import annotations

from collections.abc import Mapping

from reput.errors import StoreChangedError, UsageError
from reput.log.mark import Mark, has_read, why_another
from reput.log.sources import LogListing


def check_goes_on(source: LogListing, log_end: int, mark: Mark, destination: str) -> None:
    """Raises StoreChangedError where the log of a store does not go on where the table ends; StoreError."""
    if why := why_another(source, log_end, mark):
        raise StoreChangedError(
            f"{source.name}: not the log that {destination} has messages of up to {mark.end}: {why}; "
            "it was truncated or replaced; export it to another place, or give it another name"
        )


def check_is_new(source: LogListing, marks: Mapping[str, Mark], destination: str) -> None:
    """Raises UsageError where the log of a store is one that the table has under another name; StoreError."""
    for name, mark in marks.items():
        if has_read(mark, source):
            raise UsageError(
                f"{source.name}: {destination} has the messages of this log as those of {name}; "
                f"give names {name}, or export to another place",
                arguments=["names"],
            )
