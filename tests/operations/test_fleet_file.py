"""The fleet file: every field, and one line for each mistake."""

from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.engine.stores import stores_of
from reput.errors import StoreNotFoundError, UsageError
from reput.reports import StoresReport
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
FULL = """
[[store]]
name = "a"
path = "brokers/a"
log_paths = ["disk2/commitlog"]
cluster = "main"
broker = "broker-a"
broker_id = 1
config = "a.conf"
archive = "s3://bucket/a"

[[store]]
path = "s3://bucket/b/store"
storage_options = { "s3.endpoint_override" = "http://localhost:9000" }

[[store]]
path = "brokers/*"
"""


def fleet(folder: Path, text: str) -> Path:
    """Write a fleet file."""
    file = folder / "fleet.toml"
    file.write_text(text)
    return file


def test_every_field_is_read_and_paths_begin_at_the_folder_of_the_file(tmp_path: Path) -> None:
    first, second, third = reput.NamedStore.read(fleet(tmp_path, FULL))
    assert first == reput.NamedStore(
        "a", f"{tmp_path}/brokers/a", {}, (f"{tmp_path}/disk2/commitlog",), "main", "broker-a", 1,
        f"{tmp_path}/a.conf", "s3://bucket/a",
    )  # fmt: skip
    assert (second.name, second.path) == ("s3://bucket/b/store",) * 2
    assert second.options == {"storage_options": {"s3.endpoint_override": "http://localhost:9000"}}
    assert (third.name, third.cluster) == (f"{tmp_path}/brokers/*", None)


def test_cluster_and_broker_come_from_the_broker_s_configuration(tmp_path: Path) -> None:
    conf = "brokerClusterName = main\nbrokerName=broker-a\nbrokerId=2\n"
    (tmp_path / "a.conf").write_text(conf)
    text = '[[store]]\npath = "a"\nconfig = "a.conf"\n'
    (store,) = reput.NamedStore.read(fleet(tmp_path, text))
    assert (store.cluster, store.broker, store.broker_id) == ("main", "broker-a", 2)
    (store,) = reput.NamedStore.read(fleet(tmp_path, text + 'broker = "b"\n'))
    assert (store.cluster, store.broker, store.broker_id) == ("main", "b", 2)
    (tmp_path / "a.conf").write_text("brokerId=x\n")
    (store,) = reput.NamedStore.read(fleet(tmp_path, text))
    assert (store.cluster, store.broker, store.broker_id) == (None, None, None)


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", r"has no \[\[store\]\]"),
        ("[[store]\n", r"not TOML: .*line 1"),
        ('[[stores]]\npath = "a"\n', r"unknown field stores; a fleet file has only \[\[store\]\] tables"),
        ('[store]\npath = "a"\n', r"write \[\[store\]\] before each store, not \[store\]"),
        ("store = [1]\n", r"\[\[store\]\] 1 must be a table"),
        ('[[store]]\nname = "a"\n', r"\[\[store\]\] 1 \(a\): path is missing"),
        (
            '[[store]]\npath = "a"\n[[store]]\nname = "b"\npth = "c"\n',
            r"\[\[store\]\] 2 \(b\): unknown field pth; did you mean path\?",
        ),
        ('[[store]]\npath = ""\n', r"1: path is empty"),
        ('[[store]]\npath = "a\\u0000b"\n', r"1: path has a NUL character; remove it"),
        ('[[store]]\npath = "a"\nlog_paths = ["\\u0000"]\n', r"log_paths has a NUL character"),
        (
            '[[store]]\npath = "a"\nstorage_options = { a = "\\u0000" }\n',
            r"storage_options has a NUL character",
        ),
        ('[[store]]\npath = "a"\nlog_paths = "b"\n', r"log_paths must be an array of strings"),
        ('[[store]]\npath = "a"\nbroker_id = true\n', r"broker_id must be an integer from 0 on"),
        ('[[store]]\npath = "a"\nbroker_id = -1\n', r"broker_id must be an integer from 0 on"),
        (
            '[[store]]\npath = "a"\nstorage_options = { a = 1 }\n',
            r"storage_options must be a table of strings",
        ),
        (
            '[[store]]\nname = "a"\npath = "x"\n[[store]]\nname = "a"\npath = "y"\n',
            r"\[\[store\]\] 1 and 2 have the same name 'a'; rename one",
        ),
        ('[[store]]\nname = "a"\npath = "x/*"\n', r"path x/\* is a pattern, so name"),
        ("a = " + "[" * 5000, r"not TOML"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(tmp_path: Path, text: str, line: str) -> None:
    file = fleet(tmp_path, text)
    with pytest.raises(UsageError, match=rf"fleet\.toml: .*{line}") as caught:
        reput.NamedStore.read(file)
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError, match=r"fleet.toml: no such fleet file"):
        reput.NamedStore.read(tmp_path / "fleet.toml")
    (tmp_path / "fleet.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not a fleet file: not UTF-8"):
        reput.NamedStore.read(tmp_path / "fleet.toml")


def test_paths_patterns_and_a_fleet_file_give_the_same_stores(
    golden: Golden, tmp_path: Path
) -> None:
    for name in ("orders", "tricky"):
        copy_store(golden(name).path, tmp_path / "brokers" / name)
    paths = [str(tmp_path / "brokers" / name) for name in ("orders", "tricky")]
    expected = [reput.NamedStore(path, path) for path in paths]
    by_file = reput.NamedStore.read(fleet(tmp_path, '[[store]]\npath = "brokers/*"\n'))
    assert stores_of(paths) == stores_of(f"{tmp_path}/brokers/*") == stores_of(by_file) == expected


def test_settings_of_one_store_that_cannot_be_read_cost_its_answer_only(
    golden: Golden, tmp_path: Path
) -> None:
    for name in ("orders", "tricky"):
        copy_store(golden(name).path, tmp_path / name)
    file = fleet(
        tmp_path,
        '[[store]]\nname = "orders"\npath = "orders"\nconfig = "gone.conf"\n'
        '[[store]]\nname = "split"\npath = "split"\nlog_paths = ["gone"]\n'
        '[[store]]\nname = "tricky"\npath = "tricky"\n'
        '[[store]]\npath = "none-*"\n',
    )
    (tmp_path / "split").mkdir()
    found = reput.check(reput.NamedStore.read(file), quick=True)
    assert isinstance(found, StoresReport)
    assert found["tricky"].is_valid
    errors = [str(one.error) for one in found.failed]
    assert "gone.conf" in errors[0]
    assert f"{tmp_path}/gone: no such directory" in errors[1]
    assert "no file or folder matches this pattern" in errors[2]


def test_a_log_in_other_folders_is_read(golden: Golden, tmp_path: Path) -> None:
    copy_store(golden("orders").path, tmp_path / "a")
    (tmp_path / "disk2").mkdir()
    (tmp_path / "a" / "commitlog").rename(tmp_path / "disk2" / "commitlog")
    text = '[[store]]\nname = "a"\npath = "a"\nlog_paths = ["disk2/commitlog"]\n'
    stores = reput.NamedStore.read(fleet(tmp_path, text))
    assert len(reput.find(stores, "order-103921")) == 8
    assert len(reput.find(f"{tmp_path}/a,{tmp_path}/disk2/commitlog", "order-103921")) == 8
