"""Random changes of an archive: each answer is right, or reports what is missing, or the archive is refused."""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import reput
from reput.errors import MessageNotFoundError, ReputError
from reput.format.archive import KEY_INDEX, QUEUE_INDEX, LogFile, chained
from reput.format.archive_index import KEY_SCHEMA, QUEUE_SCHEMA
from reput.format.commit_log import MessageExt
from reput.io.archive import Archive
from reput.wings.archive.indexing import IndexWriter
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
_MANIFEST = "archive.json"
_CHANGES = 100


class Expected(NamedTuple):
    """What the store answers.

    Attributes:
        queries: topic, key, and the messages.
        numbered: by topic, queue and queue offset, the message.
        ends: by queue, its least and its next queue offset.
    """

    queries: list[tuple[str, str, list[MessageExt]]]
    numbered: dict[tuple[str, int, int], MessageExt]
    ends: dict[tuple[str, int], tuple[int, int]]


class Archived(NamedTuple):
    """An archive whose indexes were merged, with the manifests that it had before.

    Attributes:
        place: Its folder.
        old: Contents of earlier manifests.
        expected: Answers of the store.
    """

    place: Path
    old: list[bytes]
    expected: Expected


@pytest.fixture(scope="module")
def archived(golden: Golden, tmp_path_factory: pytest.TempPathFactory) -> Archived:
    folder = tmp_path_factory.mktemp("changes")
    store, place, old = folder / "store", folder / "archive", []
    copy_store(golden("orders").path, store)
    files = sorted((store / "commitlog").iterdir())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reput.wings.archive.changes._FAN", 3)
        patch.setattr("reput.wings.archive.changes._MOST_DAY_FILES", 0)
        for count in (3, 6, len(files)):
            some = folder / f"store-{count}"
            copy_store(store, some)
            for file in files[count:]:
                (some / "commitlog" / file.name).unlink()
            reput.archive(some, place)
            old.append((place / _MANIFEST).read_bytes())
    end = Archive(str(place)).manifest.end
    with reput.open_store(store) as opened:
        asked = golden("orders").queries
        queries = [
            (
                one.topic, one.key,
                [m for m in opened.query(one.topic, one.key).messages if m.physical_offset < end],
            )
            for one in Random(0).sample(asked, 30)
        ]  # fmt: skip
        numbered, ends = {}, {}
        for topic, queue in opened.list_queues():
            least, stop = (
                opened.min_queue_offset(topic, queue),
                opened.max_queue_offset(topic, queue),
            )
            inside = []
            for number in range(least, stop, max((stop - least) // 9, 1)):
                message = opened.get_by_queue(topic, queue, number)
                if message.physical_offset < end:
                    inside.append(number)
                    numbered[topic, queue, number] = message
    with reput.open_store(place) as archive:
        for topic, queue in archive.list_queues():
            ends[topic, queue] = (
                archive.min_queue_offset(topic, queue), archive.max_queue_offset(topic, queue),
            )  # fmt: skip
    assert any(messages for *_, messages in queries)
    return Archived(place, old[:-1], Expected(queries, numbered, ends))


Undo = Callable[[], None]


def _files(place: Path) -> list[Path]:
    return [path for path in sorted(place.rglob("*")) if path.is_file() and path.stat().st_size]


def _chosen_file(place: Path, random: Random) -> Path:
    """Choose the manifest in one case of five. Choose log objects rarely, because most changes have the same effect."""
    if random.random() < 0.2:
        return place / _MANIFEST
    named = Archive(str(place)).manifest.objects()
    if random.random() < 0.6:
        named = {name: size for name, size in named.items() if not name.startswith("log/")}
    return place / random.choice(sorted(named))


def _rewritten(path: Path, data: bytes) -> Undo:
    before = path.read_bytes()
    path.write_bytes(data)
    return lambda: _write(path, before)


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _flip(archived: Archived, random: Random) -> Undo:
    path = _chosen_file(archived.place, random)
    data = bytearray(path.read_bytes())
    for _ in range(random.choice([1, 1, 1, 20])):
        # Half of them near the end, where footers and seek tables are.
        low = max(len(data) - 3000, 0) if random.random() < 0.5 else 0
        data[random.randrange(low, len(data))] ^= random.randrange(1, 256)
    return _rewritten(path, bytes(data))


def _truncate(archived: Archived, random: Random) -> Undo:
    path = _chosen_file(archived.place, random)
    data = path.read_bytes()
    return _rewritten(
        path, data[: random.choice([0, 1, len(data) - 1, random.randrange(len(data))])]
    )


def _extend(archived: Archived, random: Random) -> Undo:
    path = _chosen_file(archived.place, random)
    data = path.read_bytes()
    return _rewritten(path, data + random.choice([b"\0", data[-40:], random.randbytes(500)]))


def _delete(archived: Archived, random: Random) -> Undo:
    path = _chosen_file(archived.place, random)
    before = path.read_bytes()
    path.unlink()
    return lambda: _write(path, before)


def _swap(archived: Archived, random: Random) -> Undo:
    path = _chosen_file(archived.place, random)
    others = [one for one in _files(archived.place) if one != path and one.parent == path.parent]
    if not others:
        return _truncate(archived, random)
    other = random.choice(others)
    undo = _rewritten(path, other.read_bytes()), _rewritten(other, path.read_bytes())
    if random.random() < 0.5:  # restore the other file, so that both have the same content
        undo[1]()

    def both() -> None:
        for one in undo:
            one()

    return both


def _old_manifest(archived: Archived, random: Random) -> Undo:
    return _rewritten(archived.place / _MANIFEST, random.choice(archived.old))


def _sealed(content: dict[str, Any]) -> bytes:
    content["chain"] = chained([LogFile(**file) for file in content["log"]])
    content["checksum"] = ""
    content["checksum"] = hashlib.sha256(msgspec.json.encode(content)).hexdigest()
    return msgspec.json.encode(content)


def _without_index(archived: Archived, random: Random) -> Undo:
    """Remove an index from the manifest, and write a valid checksum."""
    content = msgspec.json.decode((archived.place / _MANIFEST).read_bytes())
    parts = content["keys"]
    for _ in range(random.randint(1, len(parts))):
        parts.pop(random.randrange(len(parts)))
    return _rewritten(archived.place / _MANIFEST, _sealed(content))


def _duplicated_rows(archived: Archived, random: Random) -> Undo:
    """Repeat some rows of an index, with valid checksums."""
    kind = random.choice([KEY_INDEX, QUEUE_INDEX])
    archive = Archive(str(archived.place))
    parts = getattr(archive.manifest, kind)
    number = random.randrange(len(parts))
    index = archive.index(parts[number])
    rows = pq.read_table(archived.place / index.part.object)
    path = archived.place / "new"
    writer = IndexWriter(path, kind)
    if kind == KEY_INDEX:
        at = random.randrange(len(rows))
        writer.add(
            pa.concat_tables([rows[: at + 1], rows[at : at + random.randint(1, 500)], rows[at:]])
            .cast(KEY_SCHEMA)
            .sort_by([("key_hash", "ascending"), ("physical_offset", "ascending")])
        )
    else:
        chosen = random.randrange(len(index.queues))
        for one, queue in enumerate(index.queues):
            own = rows.cast(QUEUE_SCHEMA)[queue.row : queue.row + queue.rows]
            twice = random.randrange(queue.rows)
            if one == chosen:
                own = pa.concat_tables([own[: twice + 1], own[twice:]])
                queue = queue._replace(rows=len(own), follows=random.random() < 0.5)
            writer.add_queue(queue)
            writer.add(own)
    new = writer.finish(index.part.begin, index.part.end, index.part.files)
    path.rename(archived.place / new.object)
    content = msgspec.json.decode((archived.place / _MANIFEST).read_bytes())
    content[kind][number] = msgspec.to_builtins(new)
    undo = _rewritten(archived.place / _MANIFEST, _sealed(content))

    def both() -> None:
        undo()
        (archived.place / new.object).unlink()

    return both


_KINDS: dict[Callable[[Archived, Random], Undo], int] = {
    _flip: 40, _truncate: 15, _extend: 8, _delete: 7, _swap: 12, _old_manifest: 5, _without_index: 6,
    _duplicated_rows: 7,
}  # fmt: skip


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(one, marks=pytest.mark.slow) for one in range(1, 100))]
)
def test_no_changed_archive_gives_a_wrong_answer_called_complete(
    archived: Archived, seed: int
) -> None:
    random, outcomes = Random(seed), Counter[str]()
    for number in range(_CHANGES):
        change = random.choices(list(_KINDS), list(_KINDS.values()))[0]
        undo = change(archived, random)
        where = f"seed {seed}, change {number}, {change.__name__}"
        try:
            outcomes.update(_outcomes(archived, random, where, is_old=change is _old_manifest))
        finally:
            undo()
    assert outcomes["right"] > 10
    assert outcomes["refused"] > 10
    with reput.open_store(archived.place) as archive:
        assert not list(_wrong(archive, archived.expected, Random(seed), is_old=False))


def _outcomes(archived: Archived, random: Random, where: str, *, is_old: bool) -> Iterator[str]:
    try:
        with reput.open_store(archived.place) as archive:
            for problem in _wrong(archive, archived.expected, random, is_old=is_old):
                assert problem in ("refused", "incomplete"), f"{where}: {problem}"
                yield problem
    except ReputError:
        yield "refused"
        return
    yield "right"


def _wrong(
    archive: reput.MessageStore, expected: Expected, random: Random, *, is_old: bool
) -> Iterator[str]:
    """Run some queries. Yield a text for each wrong answer, "refused" for an error, "incomplete" for a reported gap."""
    is_scanned = False
    for topic, key, messages in random.sample(expected.queries, 3):
        if is_scanned:  # scans are slow, and the next query would scan as well
            break
        try:
            found = archive.query(topic, key)
        except ReputError:
            yield "refused"
            continue
        is_scanned = bool(found.coverage.scanned)
        log = found.coverage.log
        inside = [one for one in messages if log.start <= one.physical_offset < log.stop]
        if len(inside) < len(messages) and not is_old:
            yield f"{topic}, {key}: the answer is about {log} only"
        if found.coverage.unreadable:
            if not all(one in messages for one in found.messages):
                yield f"{topic}, {key}: has other messages"
            yield "incomplete"
        elif list(found.messages) != inside:
            yield f"{topic}, {key}: {len(found.messages)} messages, not {len(inside)}"
    for place in random.sample(sorted(expected.numbered), 3):
        try:
            message = archive.get_by_queue(*place)
        except MessageNotFoundError as error:
            yield "refused" if is_old else f"{place}: {error}"
        except ReputError:
            yield "refused"
        else:
            if message != expected.numbered[place]:
                yield f"{place}: another message"
    queue = random.choice(sorted(expected.ends))
    try:
        ends = archive.min_queue_offset(*queue), archive.max_queue_offset(*queue)
    except ReputError:
        yield "refused"
    else:
        if ends != expected.ends[queue] and not is_old:
            yield f"{queue}: from {ends[0]} to {ends[1]}"


def test_verification_finds_every_change_of_an_object(archived: Archived, tmp_path: Path) -> None:
    place, random = tmp_path / "archive", Random(1)
    shutil.copytree(archived.place, place)
    copy = archived._replace(place=place)
    for number in range(60):
        change = (_flip, _truncate, _extend, _delete)[number % 4]
        before = {path: path.read_bytes() for path in _files(place)}
        undo = change(copy, random)
        changed = [
            path for path, data in before.items() if not path.exists() or path.read_bytes() != data
        ]
        try:
            report = reput.verify_archive(place)
        except ReputError:
            pass
        else:
            assert not changed or not report.is_valid, (number, change.__name__, changed)
        undo()
    assert reput.verify_archive(place).is_valid
