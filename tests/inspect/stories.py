"""Stores with a story: records with times, and the indexes that a broker would write."""

from collections import Counter
from pathlib import Path

from reput.engine.stores import open_store
from reput.wings.inspect.trace import trace_life
from reput.wings.inspect.tracing.life import Life, Reason, ReasonKind
from tests.oracle.forge import LogForge, RecordFields
from tests.oracle.life import offset_id
from tests.oracle.records import decode
from tests.query.stores import build_store

BEGIN_MS = 1_700_000_000_000
KEY = "order-1"


class Story:
    """A sequence of records. Times are milliseconds after the birth of the first one."""

    def __init__(self) -> None:
        self.forge = LogForge(1 << 16)
        self._counts: Counter[tuple[str, int]] = Counter()

    def put(
        self,
        topic: str,
        at_ms: int = 0,
        *,
        queue_id: int = 0,
        unique_key: str = "U1",
        key: str = KEY,
        body: bytes = b"body",
        born_ms: int = 0,
        sys_flag: int = 0,
        times: int = 0,
        **properties: str,
    ) -> int:
        """Add a record, and return its physical offset."""
        values = {"KEYS": key, "UNIQ_KEY": unique_key, **properties}
        place = topic, queue_id
        offset = self.forge.put(
            RecordFields(
                topic=topic,
                body=body,
                properties={name: value for name, value in values.items() if value},
                queue_id=queue_id,
                queue_offset=self._counts[place],
                sys_flag=sys_flag,
                born_timestamp=BEGIN_MS + born_ms,
                store_timestamp=BEGIN_MS + at_ms,
                reconsume_times=times,
            )
        )
        self._counts[place] += 1
        return offset

    def store(self, path: Path) -> Path:
        return build_store(path, self.forge.files(), hash_slots=16, index_items=60)

    def id_of(self, offset: int) -> str:
        """Return the offset id of a record."""
        for start, data in self.forge.files():
            if start <= offset < start + len(data):
                record = decode(bytes(data), offset - start)
                return offset_id(offset, record)  # type: ignore[arg-type]
        raise AssertionError(offset)


def traced(*stores: Path, **asked: object) -> Life:
    opened = [open_store(store) for store in stores]
    try:
        return trace_life(opened, **(asked or {"key": KEY}))  # type: ignore[arg-type]
    finally:
        for store in opened:
            store.close()


def offsets(life: Life) -> list[int]:
    return [event.message.physical_offset for event in life.events]


def kinds(life: Life) -> list[ReasonKind]:
    return [reason.kind for reason in life.reasons]


def the_reason(life: Life, kind: ReasonKind) -> Reason:
    (found,) = (reason for reason in life.reasons if reason.kind is kind)
    return found
