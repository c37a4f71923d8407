"""A golden store that an input changes. When the input has been read, the store is as before.

An input is a series of patches. Each has the number of a file (1 byte), a position (2 bytes, big endian), a count (1
byte), and then `count` bytes to write there. Count 255 cuts the file at the position, and 254 removes the file.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reput.format.file_names import parse_offset_file_name
from tests.golden.stores import GoldenStore, unpack
from tests.golden.tables import MessageRow

MAX_BYTES = 512
_STORE = "extremes"
# Keep only some files, as if the others had expired, because a shorter log is read more often.
_KEPT_FILES = {"commitlog": 1, "index": 6}
_CUT, _REMOVE = 255, 254
_HEAD_BYTES = 4
_SEED_PATCHES = ((0, 48), (91, 100), (600, 60))  # Position and length of each.


class PatchedStore:
    """A golden store at `path`, with the offsets of its messages in `offsets`.

    keys_at the (topic, key) pairs that lead to a message, by its physical offset
    queries the golden queries: each (topic, key) once
    """

    def __init__(self, folder: Path) -> None:
        golden = GoldenStore(_STORE, unpack(_STORE, folder))
        self.path = golden.path
        for name, kept in _KEPT_FILES.items():
            for path in sorted((self.path / name).iterdir())[:-kept]:
                path.unlink()
        log_begin = int(min(path.name for path in (self.path / "commitlog").iterdir()))
        messages = [row for row in golden.messages if row.physical_offset >= log_begin]
        self.queries = list(dict.fromkeys((query.topic, query.key) for query in golden.queries))
        self.keys_at = {row.physical_offset: _keys(row) for row in messages}
        self.offsets = sorted(self.keys_at)
        self.files = sorted(path for path in self.path.rglob("*") if path.is_file())
        self._originals = [path.read_bytes() for path in self.files]

    @contextmanager
    def patched(self, data: bytes) -> Iterator[Path]:
        changed: dict[int, bytearray | None] = {}
        for number, position, count, patch in _patches(data):
            number %= len(self.files)
            content = changed.setdefault(number, bytearray(self._originals[number]))
            if content is not None and count == _CUT:
                del content[position:]
            elif count == _REMOVE:
                changed[number] = None
            elif content is not None:
                # The file keeps its size. The rest of a patch is left out.
                patch = patch[: max(len(content) - position, 0)]
                content[position : position + len(patch)] = patch
        try:
            for number, content in changed.items():
                if content is None:
                    self.files[number].unlink()
                else:
                    self.files[number].write_bytes(content)
            yield self.path
        finally:
            for number in changed:
                self.files[number].write_bytes(self._originals[number])

    def message_near(self, data: bytes) -> int:
        """Return the offset of the message that the first patch changes, or of another one if it changes none."""
        for number, position, _, _ in _patches(data):
            start = parse_offset_file_name(self.files[number % len(self.files)].name) or 0
            return self.offsets[max(bisect_right(self.offsets, start + position) - 1, 0)]
        return self.offsets[0]

    def seeds(self) -> list[bytes]:
        """Return patches for every file that do not change it yet."""
        return [
            bytes([number]) + position.to_bytes(2) + bytes([length]) + part
            for number, original in enumerate(self._originals)
            for position, length in _SEED_PATCHES
            if len(part := original[position : position + length]) == length
        ]


def patch_seeds() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        return PatchedStore(Path(folder)).seeds()


def _keys(row: MessageRow) -> list[tuple[str, str]]:
    keys = [row.uniq_key or "", *(row.keys or "").split(" ")]
    return [(row.topic, key) for key in keys if key]


def _patches(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    position = 0
    while position + _HEAD_BYTES <= len(data):
        number, place, count = data[position], data[position + 1 : position + 3], data[position + 3]
        position += _HEAD_BYTES
        length = 0 if count in (_CUT, _REMOVE) else count
        yield number, int.from_bytes(place), count, data[position : position + length]
        position += length
