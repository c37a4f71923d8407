"""After any single change in a valid store, a full check finds it if any answer of the store changes.

What cannot be found is exempted by name, as docs/check.md lists it, and counted.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from random import Random
from typing import Any

import pytest

import reput
from reput.base.config import StoreConfig
from reput.core.query.answers import PullStatus
from reput.engine.check.run import check_store
from reput.errors import ReputError
from reput.format.checkpoint import Checkpoint, encode_checkpoint
from tests.mutators import Change, changed_store
from tests.oracle.forge import LogForge, RecordFields
from tests.oracle.records import Record
from tests.oracle.walk import read_log, walk
from tests.query.stores import build_store
from tests.slow import examples
from tests.tables.reading import read, rows_of

pytestmark = pytest.mark.usefixtures("own_cache")
CONFIG = StoreConfig(commit_log_file_bytes=4096, queue_entries=30, hash_slots=64, index_items=60)
_RECORDS = 90
_MOST_PULLS = 100
BEGIN_MS = 1_700_000_000_000

# Fields that a record has once and without a checksum, with their names in docs/check.md.
UNCHECKED = {
    "flag": "FLAG",
    "born_timestamp": "BORNTIMESTAMP",
    "born_host": "BORNHOST",
    "store_host": "STOREHOST",
    "reconsume_times": "RECONSUMETIMES",
    "prepared_transaction_offset": "PREPAREDTRANSACTIONOFFSET",
    "store_timestamp": "STORETIMESTAMP",
    "sys_flag": "SYSFLAG",
    "properties": "PROPERTIES",
}
CHECKED_PROPERTIES = ("KEYS", "UNIQ_KEY", "TAGS")
EXPIRY = "the oldest files of the log"
Records = dict[int, Record]


def valid_store(path: Path) -> Path:
    """Write a valid store of two topics and three queues, with several files of each kind, and with transactions."""
    forge, numbers = LogForge(CONFIG.commit_log_file_bytes), Counter[tuple[str, int]]()
    for count in range(_RECORDS):
        queue = ("A", count % 2) if count % 3 else ("B", 0)
        properties = {"KEYS": f"k{count} all", "TAGS": f"t{count % 3}", "color": "blue"}
        if count % 7 == 0:
            properties = {"UNIQ_KEY": f"U{count}"}
        forge.put(
            RecordFields(
                topic=queue[0], queue_id=queue[1], queue_offset=numbers[queue],
                body=b"x" * (count % 40 + 1), properties=properties,
                sys_flag=8 if count % 11 == 0 else 0, store_timestamp=BEGIN_MS + count * 400,
            )
        )  # fmt: skip
        numbers[queue] += 1
    build_store(path, forge.files(), CONFIG.hash_slots, CONFIG.index_items)
    last_ms = BEGIN_MS + (_RECORDS - 1) * 400
    (path / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(last_ms, last_ms, last_ms)))
    return path


@dataclass
class Mutations:
    """Changes a store repeatedly, and counts the outcomes.

    found     changes that the check finds
    harmless  changes that the check does not find, and that affect no answer
    exempted  changes that affect an answer, but that no check can find; by the name of the changed field
    missed    all other changes
    """

    path: Path
    random: Random
    found: int = 0
    harmless: int = 0
    exempted: Counter[str] = field(default_factory=Counter)
    missed: list[str] = field(default_factory=list)

    def run(self, changes: int) -> None:
        valid_store(self.path)
        assert list(check_store(self.path)) == []
        records = dict(walk(read_log(self.path)).records)
        whole = answers(self.path, records)
        assert "error" not in whole.values()
        for _ in range(changes):
            with changed_store(self.path, self.random) as change:
                self._look(change, records, whole)
        assert list(check_store(self.path)) == []

    def _look(self, change: Change, before: Records, whole: dict[Any, Any]) -> None:
        if is_found(self.path):
            self.found += 1
            return
        after = dict(walk(read_log(self.path)).records)
        if answers(self.path, {**after, **before}) == answers_over(whole, self.path, after, before):
            self.harmless += 1
        elif names := exemptions(before, after):
            self.exempted.update(names)
        else:
            self.missed.append(str(change))


def is_found(store: Path) -> bool:
    try:
        return any(finding.is_wrong for finding in check_store(store))
    except ReputError:  # the command reports it in one line, with an exit code other than 0
        return True


def answers_over(whole: dict[Any, Any], path: Path, after: Records, before: Records) -> Any:
    """Return the answers of the unchanged store. For keys that only the changed store has, they are empty."""
    asked = questions({**after, **before})
    return {question: whole.get(question, []) for question in asked}


def questions(records: Records) -> list[Any]:
    """Return queries: the table, each queue, and each key twice, at any time and at the time of its first message."""
    keys = {
        (record.topic, key): record.store_timestamp
        for _, record in sorted(records.items(), reverse=True)
        for key in record.index_keys
    }
    queues = {(record.topic, record.queue_id) for record in records.values()}
    anytime = [("key", *key) for key in sorted(keys)]
    return [
        ("table",),
        *sorted(queues),
        *anytime,
        *(("key", *key, at, at) for key, at in sorted(keys.items())),
    ]


def answers(store: Path, records: Records) -> dict[Any, Any]:
    """Return answers by query: a scan of the table, a pull of each queue, each key; `error` if one raises."""
    return {question: _answer(store, question) for question in questions(records)}


def _answer(store: Path, question: tuple[Any, ...]) -> Any:
    try:
        if question == ("table",):
            return [
                {**row, "path": "", "file": ""} for row in rows_of(read(store, on_corrupt="skip"))
            ]
        with opened(store) as found:
            if question[0] == "key":
                return found.query(*question[1:]).messages
            return list(_pulled(found, *question))
    except ReputError:
        return "error"


@contextmanager
def opened(store: Path) -> Iterator[Any]:
    with reput.open_store(
        store, hash_slots=CONFIG.hash_slots, index_items=CONFIG.index_items
    ) as found:
        yield found


def _pulled(store: Any, topic: str, queue_id: int) -> Iterator[Any]:
    position = store.min_queue_offset(topic, queue_id)
    for _ in range(_MOST_PULLS):
        result = store.pull(topic, queue_id, position, 64)
        yield from result.messages
        position = result.next_begin_offset
        if result.status is PullStatus.NO_NEW_MESSAGE:
            return


def exemptions(before: Records, after: Records) -> set[str]:
    """Return the names of changes that no check can find; empty for others."""
    lost = [offset for offset in before if offset not in after]
    if lost and not (after.keys() - before.keys()) and max(lost) < min(after, default=0):
        if all(before[offset] == record for offset, record in after.items()):
            return {EXPIRY}
        return set()
    if before.keys() != after.keys():
        return set()
    changed = {
        one.name
        for offset, record in after.items()
        for one in fields(Record)
        if getattr(record, one.name) != getattr(before[offset], one.name)
    } - {"properties_string"}
    kept = all(
        record.properties.get(name) == before[offset].properties.get(name)
        for offset, record in after.items()
        for name in CHECKED_PROPERTIES
    )
    return {UNCHECKED[name] for name in changed} if kept and changed <= UNCHECKED.keys() else set()


def checked_changes(path: Path, changes: int, seed: int) -> Mutations:
    made = Mutations(path / "store", Random(seed))
    made.run(changes)
    assert made.found + made.harmless + sum(made.exempted.values()) >= changes - len(made.missed)
    return made


def test_a_check_finds_every_change_that_changes_an_answer(tmp_path: Path) -> None:
    changes = examples(50)
    made = checked_changes(tmp_path, changes, seed=1)
    print(made)
    assert made.missed == []
    assert made.found > changes / 2


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_check_finds_ten_thousand_changes(tmp_path: Path) -> None:
    made = checked_changes(tmp_path, 10_000, seed=2)
    print(made)
    assert made.missed == []


def test_each_exemption_is_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "check.md").read_text()
    section = page[page.index("## What a check cannot find") :].replace("\n", " ")
    for name in (*UNCHECKED.values(), EXPIRY):
        assert name in section
