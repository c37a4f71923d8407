"""End a command while a thread of Arrow reads through a file system that is written in Python.

Run as a process of its own: `python -m tests.cli.arrow_at_exit`. It exits with the code of the command, 3.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs

from reput.cli import main as command

_BYTES = 10_000
_reached = threading.Event()


class _File:
    """A file whose reads do not return."""

    closed, position = False, 0

    def seek(self, position: int, whence: int = 0) -> int:
        self.position = _BYTES if whence == 2 else position
        return self.position

    def tell(self) -> int:
        return self.position

    def read(self, count: int) -> bytes:
        _reached.set()
        while True:
            time.sleep(0.001)

    def close(self) -> None:
        pass


class _Files(fs.FileSystemHandler):  # type: ignore[misc]
    def get_type_name(self) -> str:
        return "python"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[Any]:
        return [fs.FileInfo(path, fs.FileType.File, size=_BYTES) for path in paths]

    def open_input_file(self, path: str) -> Any:
        return pa.PythonFile(_File(), "r")

    def _unused(self, *_: Any) -> Any:
        raise NotImplementedError

    get_file_info_selector = create_dir = delete_dir = delete_dir_contents = _unused
    delete_root_dir_contents = delete_file = move = copy_file = _unused
    open_input_stream = open_output_stream = open_append_stream = _unused


def main() -> None:
    form = ds.ParquetFileFormat()
    fragment = form.make_fragment("file", fs.PyFileSystem(_Files()))
    dataset = ds.FileSystemDataset([fragment], pa.schema([("a", pa.int64())]), form)
    threading.Thread(target=dataset.to_table, daemon=True).start()
    _reached.wait()
    command.main = lambda args=None: command.DAMAGED
    print("the output")
    command.start()


if __name__ == "__main__":
    main()
