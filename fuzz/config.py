"""Read changed files of config/, a broker's configuration and an account file. Each is read or refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fuzz.allowed import allowed
from fuzz.logs import log_seeds, write_log
from reput.base.config import StoreConfig
from reput.core.query.message_store import MessageStore
from reput.core.store.topics_file import topic_attributes
from reput.engine.stores import open_store
from reput.format.properties import decode_properties
from reput.format.real_queue import consumer_group
from reput.format.timer_log import recall_key, recalled_key
from reput.format.transactions import check_times, decided_offsets
from reput.format.untrusted_json import parse_java_json
from reput.wings.serve.broker.groups import SubscriptionGroups
from reput.wings.serve.broker.offsets import committed_offsets
from reput.wings.serve.broker.open_transactions import open_transactions
from reput.wings.serve.broker.popped import PoppedMessages
from reput.wings.serve.broker.topics import TopicTable
from reput.wings.serve.remoting.access import AccessList

_COMMITTED = b'{"dataVersion":{"counter":2},"offsetTable":{"T@g":{0:3,1:4},"%RETRY%g@g":{0:1}}}'
_LIGHT = b'{"lmqOffsetTable":{"%LMQ%a@g":7},"offsetTable":{"T@g":{0:3}}}'
_LAST_POPS = (
    b'{"table":{"T@g":{0:{"popTime":9,"i":5,"o":[4,1,2],"cm":3,"ot":{5:8},"oc":{},"l":9,"a":"x"}}}}'
)
_SUBSCRIBED = (
    b'{"subscriptionGroupTable":{"g":{"groupName":"g","retryMaxTimes":16,"retryQueueNums":1}}}'
)
_TOPIC_TABLE = (
    b'{"topicConfigTable":{"T":{"topicName":"T","readQueueNums":4,"writeQueueNums":4,"perm":6,'
    b'"attributes":{"queue.type":"BatchCQ"}}}}'
)
_SETTINGS = b"maxHashSlotNum=500\nmaxIndexNum = 2000\nmessageDelayLevel=1s 5s\nenableLmq:true\n"
_ACL = (
    b"globalWhiteRemoteAddresses:\n- 10.0.0.*\naccounts:\n- accessKey: alice1\n  secretKey: secret12\n"
    b"  admin: false\n  defaultTopicPerm: DENY\n  topicPerms:\n  - T=PUB|SUB\n  groupPerms:\n  - g=SUB\n"
)
_PROPERTIES = b"REAL_TOPIC\x01T\x02UNIQ_KEY\x01U\x02TIMER_OUT_MS\x019\x02TIMER_DEL_UNIQKEY\x01T+U"


def _offsets(store: MessageStore, path: Path) -> None:
    for one in committed_offsets(Path(store.path)):
        assert one.queue_id == int(one.queue_id)
    list(open_transactions(store))


def _order(store: MessageStore, path: Path) -> None:
    notes = PoppedMessages(store)
    for one in notes:
        assert set(one.unacked) <= set(one.offsets)
    for finding in notes.damage:
        str(finding)


def _groups(store: MessageStore, path: Path) -> None:
    SubscriptionGroups(Path(store.path))


def _topics(store: MessageStore, path: Path) -> None:
    topic_attributes(store.path)
    TopicTable(store, Path(store.path), is_writable=False)


def _broker(store: MessageStore, path: Path) -> None:
    StoreConfig.from_broker_config(path)


def _accounts(store: MessageStore, path: Path) -> None:
    AccessList.read(path)


def _texts(store: MessageStore, path: Path) -> None:
    data = path.read_bytes()
    properties = decode_properties(data.decode("utf-8", "surrogateescape"))
    recalled_key(properties)
    recall_key(properties)
    check_times(properties)
    group = consumer_group(
        "%RETRY%" + properties.get("REAL_TOPIC", "g_T"), properties, {"T", "g_T"}
    )
    assert len(group) <= len(data) + 4
    assert all(offset >= 0 for offset in decided_offsets(data))
    with suppress(ValueError):
        parse_java_json(data)


_FILES: tuple[tuple[str, bytes, Callable[[MessageStore, Path], None]], ...] = (
    ("consumerOffset.json", _COMMITTED, _offsets),
    ("lmqConsumerOffset.json", _LIGHT, _offsets),
    ("consumerOrderInfo.json", _LAST_POPS, _order),
    ("subscriptionGroup.json", _SUBSCRIBED, _groups),
    ("topics.json", _TOPIC_TABLE, _topics),
    ("broker.conf", _SETTINGS, _broker),
    ("plain_acl.yml", _ACL, _accounts),
    ("texts", _PROPERTIES, _texts),
)


class Target:
    MAX_BYTES = 1 << 11

    def __init__(self, folder: Path) -> None:
        self._path = write_log(folder / "store", log_seeds()[0])
        self._config = self._path / "config"
        self._config.mkdir(exist_ok=True)
        self._store = open_store(self._path)

    @staticmethod
    def seeds() -> list[bytes]:
        """Return the first inputs. An input is the number of a file, and then its content."""
        return [bytes([number]) + seed for number, (_, seed, _) in enumerate(_FILES)]

    def run(self, data: bytes) -> None:
        name, _, read = _FILES[data[0] % len(_FILES)] if data else _FILES[0]
        path = self._config / name
        path.write_bytes(data[1:])
        try:
            with allowed():
                read(self._store, path)
        finally:
            path.unlink()
