"""All bytes of a store or an archive, decompressed."""

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import zstandard

from tests.rocksdb_queues import items

_PAGE_BYTES = 1 << 20


def all_bytes(root: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the bytes of each file below a folder, as stored and decompressed."""
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_dir():
            if path.name == "consumequeue" and (path / "CURRENT").exists():
                found = items(path.parent)
                pairs = (key + value for family in found.values() for key, value in family.items())
                yield f"{name} (entries)", b"\0".join(pairs)
            continue
        data = _without_empty_pages(path)
        yield name, data
        if path.suffix == ".zst":
            yield f"{name} (content)", _decompressed(data)
        elif path.suffix == ".parquet":
            rows = pq.read_table(path)
            texts = [
                text
                for one in rows.columns
                if one.type == "string"
                for text in set(one.to_pylist())
            ]
            yield f"{name} (rows)", "\0".join(texts).encode()
        elif path.suffix == ".tar":
            with tarfile.open(path) as tar:
                for one in tar:
                    if (file := tar.extractfile(one)) is not None:
                        yield f"{name}/{one.name}", file.read()


def _decompressed(data: bytes) -> bytes:
    reader = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
    return reader.read()


def places_of(patterns: set[bytes], root: Path) -> list[tuple[str, bytes]]:
    """Return (file name, byte string) for each byte string that a file contains."""
    return [
        (name, pattern) for name, data in all_bytes(root) for pattern in patterns if pattern in data
    ]


def _without_empty_pages(path: Path) -> bytes:
    """Return the bytes of a file without pages of zeros: a sparse log file of 1 GiB has few others."""
    with path.open("rb") as file:
        pages = iter(lambda: file.read(_PAGE_BYTES), b"")
        return b"".join(page for page in pages if page.count(0) < len(page))
