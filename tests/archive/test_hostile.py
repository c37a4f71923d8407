"""Archives that an attacker changed, with valid checksums: refused in one line, and nothing is written elsewhere."""

import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import reput
from reput.errors import CorruptMessageError, FormatError, ReputError
from reput.format.archive import QUEUE_INDEX, LogFile, chained
from reput.format.archive_index import DIGESTS, GROUP_ROWS, KEY_SCHEMA, QUEUE_SCHEMA, QueueRows
from reput.format.seekable_zstd import FRAME_BYTES, decode_tail, encode_tail, tail_bytes
from reput.io.archive import Archive, ParquetIndex
from reput.wings.archive.indexing import IndexWriter
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
_MANIFEST = "archive.json"
_SNAPSHOT = f"snapshots/{'a' * 64}.tar"


@pytest.fixture
def place(golden: Golden, tmp_path: Path) -> Path:
    place = tmp_path / "archive"
    reput.archive(golden("lmq").path, place, with_last=True)
    return place


def _sealed(place: Path, content: dict[str, Any]) -> None:
    """Write a manifest whose chain and checksum are right."""
    log = [LogFile(**file) for file in content["log"]]
    content["chain"] = chained(log)
    content["checksum"] = ""
    content["checksum"] = hashlib.sha256(msgspec.json.encode(content)).hexdigest()
    (place / _MANIFEST).write_bytes(msgspec.json.encode(content))


def _manifest(place: Path) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode((place / _MANIFEST).read_bytes())
    return found


def _with_snapshot(place: Path, data: bytes) -> None:
    (place / _SNAPSHOT).parent.mkdir(exist_ok=True)
    (place / _SNAPSHOT).write_bytes(data)
    content = _manifest(place)
    content["snapshots"] = [
        {
            "taken_ms": 1, "log_end": 1 << 40, "object": _SNAPSHOT, "object_bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
    ]  # fmt: skip
    _sealed(place, content)


def _tar(member: tarfile.TarInfo, data: bytes = b"x") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        member.size = len(data) if member.isreg() else 0
        tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def _link(kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo("config/link")
    member.type, member.linkname = kind, "/etc/passwd"
    return member


def _sparse() -> tarfile.TarInfo:
    member = tarfile.TarInfo("config/sparse")
    member.pax_headers = {
        "GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.name": "config/sparse",
        "GNU.sparse.size": str(1 << 40), "GNU.sparse.numblocks": "1", "GNU.sparse.map": f"{(1 << 40) - 1},1",
    }  # fmt: skip
    return member


@pytest.mark.parametrize(
    "data",
    [
        *(
            pytest.param(_tar(tarfile.TarInfo(name)), id=name.replace("/", "-"))
            for name in (
                "config/../../outside", "/tmp/outside", "../outside", "commitlog/00000000000000000000", "abort",
                "config/x/y", "config/..", "config/.",
            )
        ),
        *(
            pytest.param(_tar(_link(kind)), id=f"kind {kind.decode()}")
            for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE)
        ),
        pytest.param(_tar(_sparse()), id="sparse"),
    ],
)  # fmt: skip
def test_a_snapshot_with_anything_but_plain_files_of_the_configuration_is_refused(
    place: Path, tmp_path: Path, data: bytes
) -> None:
    _with_snapshot(place, data)
    before = {path for path in tmp_path.rglob("*") if path.name != "restored"}
    with pytest.raises(FormatError, match="snapshot"):
        reput.restore(place, tmp_path / "restored")
    after = {path for path in tmp_path.rglob("*") if "restored" not in path.parts}
    assert after == before
    assert not list((tmp_path / "restored").glob("config/*"))
    assert not reput.verify_archive(place).is_valid


def _change(member: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        content["log"][0][member] = value

    return change


def _stretch(content: dict[str, Any], kind: str) -> None:
    """Claim that the index of the first log file has the entries of all files."""
    last = content["log"][-1]
    del content[kind][1:]
    content[kind][0].update(end=last["begin"] + last["size"], files=1)


@pytest.mark.parametrize(
    "change",
    [
        _change("size", 1 << 62), _change("size", 1 << 32), _change("data_bytes", 1 << 46),
        _change("path", "config/topics.json"), _change("path", "../commitlog/00000000000000000000"),
        _change("path", "00000000000000000000"), _change("path", "/commitlog/00000000000000000000"),
        _change("path", "commitlog/../00000000000000000000"),
        _change("path", "consumequeue/Parent/0/00000000000000000000"), _change("path", "index/00000000000000000000"),
        _change("path", "config/00000000000000000000"), _change("path", ".reput-restoring/00000000000000000000"),
        _change("object", _MANIFEST), _change("object", "../other/log"), _change("object", "log/.."),
        lambda content: content["keys"][0].update(footer_bytes=1 << 41, object_bytes=1 << 41),
        lambda content: content["snapshots"][0].update(object_bytes=1 << 41),
        lambda content: content["settings"].update(queue_entries="x"),
        lambda content: content["settings"].update(nonsense=1),
        lambda content: content["settings"].update(queue_entries=0),
        lambda content: content["settings"].update(delay_levels="1s " * 10_000 + "1s"),
        _change("size", 0), _change("times", {"least": 2, "greatest": 1}),
        _change("times", {"least": 0, "greatest": 1 << 63}),
        lambda content: content["keys"][0].update(files=7),
        lambda content: content["queues"][0].update(files=0),
        lambda content: content["keys"][-1].update(end=(1 << 62) - 1),
        lambda content: content["keys"][0].update(begin=1),
        lambda content: content.update(keys=content["keys"][:1] * 2),
        lambda content: content.update(queues=content["keys"]),
        lambda content: _stretch(content, "keys"), lambda content: _stretch(content, "queues"),
    ],
)  # fmt: skip
def test_a_manifest_with_sizes_paths_or_settings_that_no_store_has_is_refused(
    place: Path, tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    content = _manifest(place)
    change(content)
    _sealed(place, content)
    for use in (
        lambda: reput.open_store(place),
        lambda: reput.restore(place, tmp_path / "restored"),
    ):
        with pytest.raises(ReputError, match=_MANIFEST):
            use()
    assert not (tmp_path / "restored").exists()


@pytest.mark.parametrize("member", ["settings", "keys", "queues", "snapshots", "version"])
def test_a_part_of_the_manifest_that_is_not_in_its_chain_has_a_checksum(
    place: Path, member: str
) -> None:
    content = _manifest(place)
    content[member] = "5.x" if member == "version" else type(content[member])()
    (place / _MANIFEST).write_bytes(msgspec.json.encode(content))
    with pytest.raises(FormatError, match="checksum"):
        reput.open_store(place)


def test_a_manifest_that_is_too_large_to_be_one_is_not_read(place: Path) -> None:
    with open(place / _MANIFEST, "r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(ReputError, match="never writes more than"):
        reput.open_store(place)


@pytest.mark.parametrize(
    "change",
    [
        {"greatest": 1 << 55}, {"rows": 1 << 50}, {"rows": -1}, {"row": 7}, {"topic": "../x"}, {"topic": 5},
        {"queue_id": "x"}, {"queue_id": -1}, {"least": -1}, {"is_batch": 2},
    ],
)  # fmt: skip
def test_a_list_of_queues_that_cannot_be_is_refused(place: Path, change: dict[str, Any]) -> None:
    """Change the list of queues in an index's footer. The index keeps a valid checksum."""
    index = _first_queue_index(place)
    _replace_queue_index(place, [index.queues[0]._replace(**change), *index.queues[1:]])
    queue = index.queues[0]
    with pytest.raises(FormatError):
        _end_of(place, queue.topic, queue.queue_id)


def _end_of(place: Path, topic: str, queue_id: int) -> int:
    with reput.open_store(place) as store:
        return store.max_queue_offset(topic, queue_id)


def _first_queue_index(place: Path) -> ParquetIndex:
    archive = Archive(str(place))
    return archive.index(archive.manifest.queues[0])


def _replace_queue_index(place: Path, queues: list[QueueRows]) -> None:
    """Write the first queue index again, with another list of queues in its footer."""
    part = _first_queue_index(place).part
    path = place / "new"
    writer = IndexWriter(path, QUEUE_INDEX)
    writer.add(pq.read_table(place / part.object).cast(QUEUE_SCHEMA))
    writer._queues = queues
    new = writer.finish(part.begin, part.end, part.files)
    path.rename(place / new.object)
    content = _manifest(place)
    content["queues"][0] = msgspec.to_builtins(new)
    _sealed(place, content)


def test_a_frame_that_is_longer_than_zstd_writes_is_not_read(place: Path) -> None:
    """A forged seek table with a valid checksum could otherwise make a reader load gigabytes for one frame."""
    content = _manifest(place)
    entry = content["log"][0]
    path, count = place / entry["object"], -(-entry["data_bytes"] // FRAME_BYTES)
    data, length = path.read_bytes(), tail_bytes(count)
    frames = decode_tail(data[-length:], entry["data_bytes"], len(data) - length)
    sizes, added = [int(size) for size in np.diff(frames.starts)], 1 << 20
    sizes[-1] += added
    tail = encode_tail(sizes, entry["data_bytes"], frames.digests)
    path.write_bytes(data[:-length] + bytes(added) + tail)
    entry.update(object_bytes=len(data) + added, tail_sha256=hashlib.sha256(tail).hexdigest())
    _sealed(place, content)
    archive = Archive(str(place))
    with pytest.raises(CorruptMessageError, match="seek table"):
        archive.read(archive.manifest.log[0], 0, 1)
    (problem,) = reput.verify_archive(place).problems
    assert "seek table" in problem


def test_pages_that_are_longer_than_the_footer_states_are_not_decompressed(place: Path) -> None:
    """The header of a page determines how much memory its reader allocates."""
    part = Archive(str(place)).manifest.keys[0]
    path, rows = place / part.object, 1 << 20
    zeros = pa.table(
        [np.zeros(rows, np.int32), np.zeros(rows, np.int64)], schema=KEY_SCHEMA
    )  # compressed, these pages are short

    def written(digest: str) -> bytes:
        with pq.ParquetWriter(
            path, KEY_SCHEMA, compression="zstd", use_dictionary=False, store_schema=False
        ) as writer:
            writer.write_table(zeros, row_group_size=rows)
            writer.add_key_value_metadata({DIGESTS.decode(): json.dumps([digest])})
        return path.read_bytes()

    data = written("0" * 64)
    length = 8 + int.from_bytes(data[-8:-4], "little")
    data = written(hashlib.sha256(data[4:-length]).hexdigest())
    footer, group = data[-length:], pq.read_metadata(path).row_group(0)
    footer = _restated(footer, rows, GROUP_ROWS)
    for number in range(group.num_columns):
        size = group.column(number).total_uncompressed_size
        footer = _restated(footer, size, size * GROUP_ROWS // rows)
    path.write_bytes(data[:-length] + footer)
    content = _manifest(place)
    content["keys"][0].update(
        object_bytes=len(data), rows=GROUP_ROWS, footer_bytes=length,
        footer_sha256=hashlib.sha256(footer).hexdigest(),
    )  # fmt: skip
    _sealed(place, content)
    archive = Archive(str(place))
    with pytest.raises(FormatError, match="longer pages"):
        archive.group(archive.index(archive.manifest.keys[0]), 0)
    (problem,) = reput.verify_archive(place).problems
    assert "longer pages" in problem


def _restated(footer: bytes, before: int, after: int) -> bytes:
    """Replace a number in a footer by another one of as many bytes (a varint in zigzag form)."""

    def varint(value: int, length: int = 0) -> bytes:
        found: list[int] = []
        while value > 127 or len(found) + 1 < length:
            found.append(value & 127 | 128)
            value >>= 7
        return bytes([*found, value])

    old = varint(2 * before)
    assert old in footer
    return footer.replace(old, varint(2 * after, len(old)))
