"""JSON lines of records as they are found: few at a time, or hundreds of thousands.

A query of a few messages ends before the kernels are loaded, which takes as long as ten thousand lines made one by one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from reput.log.reader import LocatedRecord
from reput.messages.json_codec import message_line

_KERNELS = "reput.messages.message_lines"
_FEW_AT_ONCE = 64
_FEW_IN_ALL = 10_000


class RecordLines:
    """Makes lines of a message each, with their ends, in UTF-8."""

    def __init__(self) -> None:
        self._count = 0

    def of(self, records: Sequence[LocatedRecord]) -> Iterator[bytes | memoryview]:
        """The lines of some records, in pieces that are good until the next is asked for."""
        self._count += len(records)
        is_worth_loading = self._count > _FEW_IN_ALL or _KERNELS in sys.modules
        if len(records) <= _FEW_AT_ONCE or not is_worth_loading:
            for record in records:
                yield message_line(record.message()) + b"\n"
            return
        from reput.messages.message_lines import record_lines

        yield from record_lines(records)
