"""The files of a store's config/, in which a broker keeps what is not in the log (`ConfigManager`, 4.9.3).

Each is replaced as a whole, and the one before it is kept with `.bak` at the end of its name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reput.errors import FormatError, StoreAccessError
from reput.files.disk import Disk
from reput.format.java_json import parse_java_json

_FOLDER = "config"
_MOST_BYTES = 64 << 20


class ConfigFile:
    """One file of config/. Not for several threads at once.

    Attributes:
        path: of the file
    """

    def __init__(self, store: Path, name: str, is_kept: bool, disk: Disk | None = None) -> None:
        """`is_kept` says whether it is written; where it is not, what is saved is forgotten with the process."""
        self.path, self._is_kept, self._disk = store / _FOLDER / name, is_kept, disk or Disk()
        self._saved: bytes | None = None

    def load(self) -> dict[str, Any]:
        """What it holds; nothing where there is none. Raises StoreAccessError, FormatError."""
        try:
            if self.path.stat().st_size > _MOST_BYTES:
                raise FormatError(self.path, _MOST_BYTES, "longer than such a file can be")
            data = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            if isinstance(error, StoreAccessError):
                raise
            raise StoreAccessError(f"{self.path}: cannot be read: {error.strerror}") from error
        try:
            found = parse_java_json(data) if data else {}
        except ValueError as error:
            raise FormatError(self.path, 0, str(error)) from None
        if not isinstance(found, dict):
            raise FormatError(self.path, 0, "not a JSON object")
        self._saved = data
        return found

    def save(self, data: bytes) -> None:
        """Replace it by this, durably. Raises StoreAccessError."""
        if not self._is_kept or data == self._saved:
            return
        self._disk.make_folder(self.path.parent)
        if self._saved is not None:
            self._disk.replace(self.path.with_name(f"{self.path.name}.bak"), self._saved)
        self._disk.replace(self.path, data)
        self._saved = data
