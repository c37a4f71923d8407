"""Settings of topics and groups that a broker of 5.x keeps in RocksDB: served from a store that is only read."""

import json
import struct
from pathlib import Path

import pytest

from reput import Message, open_store
from reput.wings.serve.remoting.requests import RequestCode
from tests.five import CONFIG
from tests.remoting.client import Client, serving

rocksdict = pytest.importorskip("rocksdict")
TOPIC = {
    "topicName": "T",
    "readQueueNums": 3,
    "writeQueueNums": 3,
    "perm": 6,
    "attributes": {"message.type": "LITE"},
}
GROUP = {"groupName": "g", "retryMaxTimes": 7, "consumeEnable": True}


def short(name: str) -> bytes:
    return struct.pack(">h", len(name)) + name.encode()


def database(folder: Path, families: dict[str, dict[bytes, bytes]]) -> None:
    written = rocksdict.Rdict(str(folder), rocksdict.Options(raw_mode=True))
    for name, items in families.items():
        family = written
        if name != "default":
            family = written.create_column_family(name, rocksdict.Options(raw_mode=True))
        for key, value in items.items():
            family[key] = value
    written.close()


def keep_in_rocksdb(config: Path, version: str) -> None:
    topic, group = (json.dumps(one).encode() for one in (TOPIC, GROUP))
    config.mkdir(exist_ok=True)
    if version == "2":
        items = {b"\1\0\3\2" + short("T"): b"\1" + topic, b"\1\0\4\2" + short("g"): b"\1" + group}
        database(config / "rdb", {"default": {**items, b"\1\0\4\2" + short("bad"): b"\1{"}})
    elif version == "single":
        database(config / "metadata", {"topic": {b"T": topic}, "subscriptionGroup": {b"g": group}})
    else:
        database(config / "topics", {"default": {b"T": topic}})
        database(config / "subscriptionGroups", {"default": {b"g": group}})


@pytest.mark.parametrize("version", ["1", "2", "single"])
def test_settings_in_rocksdb_are_served(tmp_path: Path, version: str) -> None:
    path = tmp_path / "s"
    with open_store(path, mode="rw", config=CONFIG) as store:
        store.put(Message("T", b"x"))
    keep_in_rocksdb(path / "config", version)
    # A broker leaves its earlier files behind, and no longer reads them.
    old = {"topicConfigTable": {"Old": {"topicName": "Old"}}}
    (path / "config" / "topics.json").write_text(json.dumps(old))
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with serving(path) as running, Client(running.address) as client:
        topics = json.loads(client.ask(RequestCode.GET_ALL_TOPIC_CONFIG).body)["topicConfigTable"]
        body = client.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body
        groups = json.loads(body)["subscriptionGroupTable"]
    assert topics.keys() == {"T"}
    assert (topics["T"]["readQueueNums"], topics["T"]["perm"]) == (3, 4)
    assert topics["T"]["attributes"] == {"message.type": "LITE"}
    assert groups["g"]["retryMaxTimes"] == 7
    assert groups.keys() == {"g"}
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before
