"""Look-ups whose keys and matches are staged in a bucket, for tasks without a common folder."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

import reput
from reput.base.tasks import Progress, SerialRunner, silent
from reput.engine.lookup.arrow import find
from reput.engine.lookup.keys import Keys
from reput.engine.lookup.lines import PLAIN
from reput.engine.lookup.operation import FileLookup
from reput.engine.stores.named_stores import NamedStore
from reput.engine.stores.runners import Chosen
from reput.errors import StoreAccessError, UsageError
from reput.io import staged
from reput.io.bucket import Bucket
from tests.golden.stores import GoldenStore
from tests.remote.faulty_server import faulty_server
from tests.remote.s3_server import upload_whole
from tests.remote.test_commands import SendingRunner
from tests.slow import slow_from

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("obstore")

Golden = Callable[[str], GoldenStore]
Options = dict[str, str]
Task = TypeVar("Task")
Result = TypeVar("Result")


class _Twice(SendingRunner):
    """Runs each task twice, as speculation does. Tasks do not see the cached places, as in processes of executors."""

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        weights: Sequence[int],
        progress: Callable[[int, int], None],
    ) -> list[Result]:
        places = dict(staged._places)
        staged._places.clear()
        super().run(function, tasks, weights, progress)
        results = super().run(function, tasks, weights, progress)
        staged._places.update(places)
        return results


@pytest.fixture(scope="module")
def url(golden: Golden, s3: Options) -> str:
    return upload_whole(golden("lmq").path, "lookups", s3)


@pytest.fixture(scope="module")
def keys(golden: Golden) -> list[tuple[str, str]]:
    """Return each (topic, key) that the broker was queried for, and a key that no message has."""
    with (golden("lmq").root / "queries.tsv").open() as file:
        rows = list(csv.reader(file, delimiter="\t"))
    return [*dict.fromkeys((row[0], row[1]) for row in rows), ("Parent", "none")]


def _table(found: object) -> list[dict[str, object]]:
    batches = found.batches()  # type: ignore[attr-defined]
    return [row for batch in batches for row in batch.drop_columns(["store"]).to_pylist()]


def test_matches_are_those_of_a_local_look_up(
    golden: Golden, s3: Options, url: str, keys: list[tuple[str, str]]
) -> None:
    with find([golden("lmq").path], Keys.of(keys), SerialRunner()) as here:
        expected = _table(here)
    assert sum(row["physical_offset"] is not None for row in expected) > 10
    staging = "s3://lookups/staging"
    with find([url], Keys.of(keys), _Twice(), staging=staging, storage_options=s3) as there:
        assert there.folder.startswith(f"{staging}/reput-lookup-")
        assert _table(there) == expected
        assert list(Bucket(staging, s3).list())
    assert not list(Bucket(staging, s3).list())


@pytest.mark.slow
def test_requests_that_fail_are_repeated(
    golden: Golden, s3: Options, url: str, keys: list[tuple[str, str]]
) -> None:
    with find([golden("lmq").path], Keys.of(keys), SerialRunner()) as here:
        expected = _table(here)
    with faulty_server(s3["s3.endpoint_override"]) as proxy:
        options = {**s3, "s3.endpoint_override": proxy.address}
        proxy.fail_often(1)
        staging = "s3://lookups/faulty"
        with find(
            [url], Keys.of(keys), _Twice(), staging=staging, storage_options=options
        ) as there:
            assert _table(there) == expected


@pytest.mark.slow
def test_executors_read_the_answer_from_the_bucket(
    spark: SparkSession, golden: Golden, s3: Options, url: str, keys: list[tuple[str, str]]
) -> None:
    from reput.spark import lookup

    rows = spark.createDataFrame(keys, "topic string, key string")
    found = lookup(
        spark, url, rows, columns=["physical_offset"], staging="s3://lookups/spark", storage_options=s3
    ).collect()  # fmt: skip
    local = reput.look_up(golden("lmq").path, keys, columns=["physical_offset"])
    expected = [
        (row["topic"], row["key"], row["physical_offset"]) for row in local.read_all().to_pylist()
    ]
    assert sorted(map(str, ((r.topic, r.key, r.physical_offset) for r in found))) == sorted(
        map(str, expected)
    )


def _keys_file(keys: list[tuple[str, str]]) -> bytes:
    return "".join(f"{topic},{key}\n" for topic, key in [("topic", "key"), *keys]).encode()


@pytest.fixture
def plain(keys: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Keys that need no quotes."""
    return [row for row in keys if row[1].isalnum()]


@pytest.mark.parametrize("layout", slow_from(1, ["parquet", "jsonl", "csv"]))
def test_keys_and_answer_are_files_in_a_bucket(
    golden: Golden, s3: Options, url: str, plain: list[tuple[str, str]], tmp_path: Path, layout: Any
) -> None:
    bucket = Bucket("s3://lookups/files", s3)
    bucket.put_new(f"{layout}.csv", _keys_file(plain))
    output = f"s3://lookups/files/found-{layout}"
    job = FileLookup(
        (NamedStore("a", url),), f"s3://lookups/files/{layout}.csv", output, layout, PLAIN
    )
    with job.run(Chosen("serial"), _shown, storage_options=s3):
        pass
    (tmp_path / "keys.csv").write_bytes(_keys_file(plain))
    here = FileLookup(
        (NamedStore("a", url),), str(tmp_path / "keys.csv"), str(tmp_path / "found"), layout, PLAIN
    )
    with here.run(Chosen("serial"), _shown, storage_options=s3):
        pass
    found = Bucket(output, s3)
    names = sorted(one.name for one in found.list())
    assert names.pop(0) == "_SUCCESS"
    assert names == sorted(path.name for path in (tmp_path / "found").iterdir())
    for name in names:
        assert found.get(name).data == (tmp_path / "found" / name).read_bytes()
    beside = bucket.get(f"found-{layout}.coverage.json").data
    assert json.loads(beside) == json.loads((tmp_path / "found.coverage.json").read_text())
    assert not [one.name for one in bucket.list() if ".reput-" in one.name]
    with (
        pytest.raises(UsageError, match="exists already; choose a new directory"),
        job.run(Chosen("serial"), _shown, storage_options=s3),
    ):
        pass


def test_keys_that_are_not_in_the_bucket_are_reported(s3: Options, url: str) -> None:
    job = FileLookup(
        (NamedStore("a", url),), "s3://lookups/none.csv", "s3://lookups/none", "csv", PLAIN
    )
    with (
        pytest.raises((UsageError, StoreAccessError)) as error,
        job.run(Chosen("serial"), _shown, storage_options=s3),
    ):
        pass
    assert "none.csv" in str(error.value)
    assert "\n" not in str(error.value)
    assert not list(Bucket("s3://lookups/none", s3).list())


@contextmanager
def _shown() -> Iterator[Progress]:
    yield silent
