"""The folders that are stores, and the places of their groups' offsets."""

import json
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from reput.engine.writer.shared_store import SharedStore
from reput.errors import UsageError
from reput.wings.serve.broker.lag import consumer_lag
from reput.wings.serve.remoting.requests import RequestCode
from reput.wings.serve.remoting.stores import find_stores, missing_stores
from tests.cli.test_lag import database
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.remoting.client import Client, serving
from tests.remoting.recorded import as_json


@pytest.mark.parametrize("name", ["five_multipath", "five_dledger"])
def test_logs_in_several_folders_and_of_dledger_are_stores(
    golden: Callable[[str], GoldenStore], name: str
) -> None:
    path = golden(name).path
    assert find_stores([str(path)]) == [str(path)]
    assert find_stores([str(path.parent)]) == [str(path)]
    with serving(path) as server, Client(server.address) as client:
        answer = client.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        with closing(SharedStore(path)) as store:
            assert set(store.topics()) <= set(json.loads(answer.body)["topicList"])


def test_the_reason_is_said_while_a_store_is_missing(tmp_path: Path) -> None:
    (tmp_path / "empty" / "inside").mkdir(parents=True)
    (tmp_path / "file").write_text("x")
    paths = [str(tmp_path / name) for name in ("none", "file", "empty")]
    reasons = list(missing_stores(paths).values())
    assert reasons[:2] == ["there is no such folder yet", "it is not a folder"]
    assert "no commitlog/" in reasons[2]


def test_lag_of_a_five_store_is_that_of_reput_lag(golden: Callable[[str], GoldenStore]) -> None:
    path = golden("five_life").path
    with closing(SharedStore(path)) as store:
        expected = {(r.group, r.topic, r.queue_id): r.committed for r in consumer_lag(store, path)}
    assert expected
    with serving(path) as server, Client(server.address) as client:
        for group in {group for group, _, _ in expected}:
            answer = client.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": group})
            for name, row in as_json(answer.body)["offsetTable"].items():
                queue = json.loads(name)
                key = group, queue["topic"], queue["queueId"]
                if key in expected:
                    assert row["consumerOffset"] == max(expected[key], 0)


def test_a_store_with_its_configuration_in_rocksdb_is_read(
    golden: Callable[[str], GoldenStore], tmp_path: Path
) -> None:
    pytest.importorskip("rocksdict")
    copy = copy_store(golden("five_batch").path, tmp_path / "store")
    database(copy / "config" / "consumerOffsets", {b"Batch2@billing": b'{"offsetTable":{0:1373}}'})
    place = {"consumerGroup": "billing", "topic": "Batch2", "queueId": 0}
    with serving(copy) as server, Client(server.address) as client:
        answer = client.ask(RequestCode.QUERY_CONSUMER_OFFSET, place)
        assert answer.fields["offset"] == "1373"


def test_a_store_with_its_configuration_in_rocksdb_is_not_written(tmp_path: Path) -> None:
    pytest.importorskip("rocksdict")
    with serving(tmp_path / "s", sends=True):
        pass
    database(tmp_path / "s" / "config" / "topics", {b"T": b"{}"})
    with (
        pytest.raises(UsageError, match=re.escape("in RocksDB")),
        serving(tmp_path / "s", sends=True),
    ):
        pass
