"""A query of a few messages loads no library that it does not need."""

import subprocess
import sys
from collections.abc import Callable

import pytest

import reput
from reput import errors
from tests.golden.stores import GoldenStore

_HEAVY = ("numpy", "numba", "pyspark", "pandas", "pyarrow", "rich", "click")


def loaded_after(code: str) -> list[str]:
    """Return the heavy libraries that a new interpreter has loaded after running `code`."""
    report = f"import sys; print([name for name in {_HEAVY} if name in sys.modules])"
    ran = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True
    )
    found: list[str] = eval(ran.stdout.splitlines()[-1])
    return found


def test_importing_reput_loads_nothing() -> None:
    assert loaded_after("import reput") == []


def test_a_query_loads_neither_numba_nor_numpy(golden: Callable[[str], GoldenStore]) -> None:
    code = (
        "import reput\n"
        f"with reput.open_store({str(golden('orders').path)!r}) as store:\n"
        "    assert len(store.query('orders', 'customer-48').messages) == 35\n"
        "    store.query_message('orders', 'customer-48', 32, 0, 2**62)\n"
        "    store.get_by_queue('orders', 0, 0)\n"
    )
    assert loaded_after(code) == []


_MODULES = 90
"""The most modules of reput that the command for one key loads. This number only shrinks."""
_UNUSED = (
    "logging", "concurrent.futures", "rich.console", "tempfile", "msgspec", "html", "reput.base.tasks",
    "reput.cli.many", "reput.io.rocksdb", "reput.format.rocksdb_config",
)  # fmt: skip


def test_the_command_for_a_key_loads_what_it_runs(golden: Callable[[str], GoldenStore]) -> None:
    store = str(golden("orders").path)
    code = (
        "import sys\n"
        "from reput.cli.main import main\n"
        f"assert main(['query', {store!r}, '--topic', 'orders', '--key', 'order-100377']) == 0\n"
        f"print(len([name for name in sys.modules if name.split('.')[0] == 'reput']),\n"
        f"      [name for name in {_UNUSED} if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count, _, unused = ran.stdout.splitlines()[-1].partition(" ")
    assert unused == "[]"
    assert int(count) <= _MODULES


def test_a_server_starts_without_kernels() -> None:
    found = loaded_after("import reput.wings.console.serving, reput.wings.console.server")
    assert not {"numba", "pyarrow", "pandas", "pyspark"} & set(found)


def test_every_public_name_is_there() -> None:
    for name in reput.__all__:
        assert getattr(reput, name).__name__ == name
    assert set(dir(reput)) == {*reput.__all__, "__version__", "errors", "reports"}
    assert reput.errors is errors
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = reput.nothing
