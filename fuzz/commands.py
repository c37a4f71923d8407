"""Run the commands on a store with changed bytes. None may crash, or print what a terminal cannot take."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha1
from io import BytesIO, TextIOWrapper
from pathlib import Path

import reput.wings.inspect.command  # noqa: F401  imported now, to be instrumented
from fuzz.allowed import allowed
from fuzz.patches import MAX_BYTES, PatchedStore, patch_seeds
from reput.cli import query, query_view, show  # noqa: F401  imported now, to be instrumented
from reput.cli.main import cli
from reput.engine.messages import codec  # noqa: F401  likewise


class Target:
    MAX_BYTES = MAX_BYTES
    seeds = staticmethod(patch_seeds)

    def __init__(self, folder: Path) -> None:
        self._store = PatchedStore(folder)

    def run(self, data: bytes) -> None:
        choice = sha1(data).digest()
        with self._store.patched(data) as path:
            offset = self._store.message_near(data)
            for topic, key in self._store.keys_at[offset][:1]:
                table = ("text", "jsonl", "csv")[choice[0] % 3]
                _call("query", path, "--topic", topic, "--key", key, "--format", table)
            layout = ("text", "json")[choice[1] % 2]
            _call("show", path, str(offset), "--format", layout)
            _call("show", path, f"X1/0/{choice[2]}", "--format", layout)
            file = self._store.files[data[0] % len(self._store.files)] if data else path
            for inspected in (path, file):
                _call("inspect", inspected, *(["--format", "json"] if choice[3] % 2 else []))


def _call(command: str, path: Path, *arguments: str) -> None:
    with allowed(), _captured():
        cli.main([command, str(path), *arguments], prog_name="reput", standalone_mode=False)


@contextmanager
def _captured() -> Iterator[None]:
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_stream(), _stream())
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _stream() -> TextIOWrapper:
    return TextIOWrapper(BytesIO(), encoding="utf-8", errors="backslashreplace")
