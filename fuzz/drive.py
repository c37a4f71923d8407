"""Run one target in this process, under atheris or on one input."""

from __future__ import annotations

import faulthandler
import resource
import sys
import time
from contextlib import redirect_stderr
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

from fuzz import INPUT_SECONDS
from fuzz.allowed import allowed

# With this limit, a length that is used without a check becomes a MemoryError.
_ADDRESS_SPACE_BYTES = 4 << 30


def main() -> None:
    name, folder, *arguments = sys.argv[1:]
    # Readers wait a moment for a live writer. No target has one.
    time.sleep = lambda seconds: None
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE_BYTES,) * 2)
    if arguments[0] == "--replay":
        target = _target(name, folder)
        faulthandler.dump_traceback_later(INPUT_SECONDS, exit=True)
        with allowed():
            target.run(Path(arguments[1]).read_bytes())
        return
    import atheris

    # Atheris prints the name of every module that it changes.
    with redirect_stderr(StringIO()), atheris.instrument_imports(include=["reput"]):
        target = _target(name, folder)

    def run(data: bytes) -> None:
        with allowed():
            target.run(data)

    atheris.Setup([sys.argv[0], *arguments], run)
    atheris.Fuzz()


def _target(name: str, folder: str) -> Any:
    return import_module(f"fuzz.{name}").Target(Path(folder))


if __name__ == "__main__":
    main()
