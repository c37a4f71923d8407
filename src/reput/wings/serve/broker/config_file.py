"""Read and write the files in a store's config/ (`ConfigManager`, 4.9.3).

These files contain the state of a broker that is not in the log, such as topics and consumer offsets. Each file is
replaced as a whole. Its previous version is kept with `.bak` at the end of its name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from reput.errors import FormatError, StoreNotFoundError
from reput.format.file_names import CONFIG_FOLDER
from reput.format.untrusted_json import MOST_JSON_BYTES, parse_java_json
from reput.io import Disk, FileReader

Parsed = TypeVar("Parsed")
_log = logging.getLogger("reput.broker")


class ConfigFile:
    """One file of config/. Any thread may save it. Saves run one after the other.

    Attributes:
        path: Path of the file.
        is_changed: Whether there are unsaved changes. The owner of this object sets this attribute.
    """

    def __init__(
        self,
        store: Path,
        name: str,
        is_writable: bool,
        disk: Disk | None = None,
        most_bytes: int = MOST_JSON_BYTES,
    ) -> None:
        """Prepare to read and write a file. If `is_writable` is false, nothing is written."""
        self.path, self._is_writable, self._disk = (
            store / CONFIG_FOLDER / name,
            is_writable,
            disk or Disk(),
        )
        self._backup = self.path.with_name(f"{name}.bak")
        self._most_bytes, self._guard = most_bytes, Lock()
        self._saved: bytes | None = None
        self.is_changed = False

    def load(self) -> dict[str, Any]:
        """Read the file, or its previous version if it is missing or empty, as a broker does (`ConfigManager.load`).

        Return an empty map if both are missing. Raises StoreAccessError, FormatError.
        """
        content, self._saved = self._read(self.path)
        return content if self._saved else self._read(self._backup)[0]

    def load_either(self, parse: Callable[[Path, dict[str, Any]], Parsed]) -> Parsed:
        """Parse the file or, if it is damaged, its previous version, as a broker does (`loadBak`).

        Raises:
            FormatError: The file is damaged, and its previous version is damaged or missing.
            StoreAccessError: A file cannot be read.
        """
        try:
            return parse(self.path, self.load())
        except FormatError as error:
            try:
                content, data = self._read(self._backup)
                value = parse(self._backup, content)
            except FormatError:
                data = None
            if data is None:
                reason = f"{error.reason}; move the file away to begin without it"
                raise FormatError(error.path, error.offset, reason) from None
            _log.warning("%s; %s is used instead", error, self._backup)
            # Rename the damaged file, so that people can examine it and the next save does not replace it.
            if self._is_writable:
                self._disk.rename(self.path, self.path.with_name(f"{self.path.name}.damaged"))
                # The file is missing now. So the next save must write it even if nothing changes. Otherwise the next
                # start would find only the backup.
                self._saved, self.is_changed = None, True
            return value

    def _read(self, path: Path) -> tuple[dict[str, Any], bytes | None]:
        try:
            # Read one byte more than allowed, to notice a file that is too long.
            data = FileReader.content_of(path, self._most_bytes + 1)
        except StoreNotFoundError:
            return {}, None
        if len(data) > self._most_bytes:
            raise FormatError(
                path, self._most_bytes, f"the file has more than {self._most_bytes} bytes"
            )
        try:
            parsed = parse_java_json(data, self._most_bytes) if data else {}
        except ValueError as error:
            raise FormatError(path, 0, str(error)) from None
        if not isinstance(parsed, dict):
            raise FormatError(path, 0, "not a JSON object")
        return parsed, data

    def saving(self, encode: Callable[[], bytes]) -> Callable[[], None]:
        """Return a function that saves the result of `encode`. Any thread may call it. It raises StoreAccessError."""
        # Clear the flag before the state is encoded. A change during the encoding sets it again, and is saved next
        # time.
        self.is_changed = False

        def save() -> None:
            try:
                self.save(encode())
            except BaseException:
                self.is_changed = True
                raise

        return save

    def save(self, data: bytes) -> None:
        """Replace the file's content durably. Raises StoreAccessError."""
        with self._guard:
            if not self._is_writable or data == self._saved:
                return
            self._disk.make_folder(self.path.parent)
            # Like a broker, keep the previous content as a backup (`MixAll.string2File`).
            if self._saved is not None:
                self._disk.replace(self._backup, self._saved)
            self._disk.replace(self.path, data)
            self._saved = data
