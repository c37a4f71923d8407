"""The first example of docs/python.md, on a damaged store of one message."""

import re
from pathlib import Path

import pytest

import reput
from tests.docs.pages import CHECKOUT


def test_the_first_example_names_the_damaged_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    with reput.open_store(
        store, mode="rw", config=reput.StoreConfig(1 << 14, 20, 64, 120)
    ) as opened:
        opened.put(reput.Message("orders", b"body", ["order-100377"]))
    (index,) = (store / "index").iterdir()
    with index.open("r+b") as file:
        file.write(b"\xff" * 8)
    page = (CHECKOUT / "docs" / "python.md").read_text(encoding="utf-8")
    block = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert block is not None
    exec(block[1].replace("/data/store", str(store)).replace('"processes"', '"serial"'), {})
    report = reput.rebuild(store, only="index", runner="serial")
    assert "1 file of 64 slots" in str(report)
    out = capsys.readouterr().out
    assert re.search(rf"^\w+ {re.escape(str(index))}$", out, re.MULTILINE), out
    assert "b'body'" in out
