"""The requests of mqadmin 4.9.3 and how it reads answers (`org.apache.rocketmq.tools.command`, `MQClientAPIImpl`).

Bodies are read as fastjson reads them into RocketMQ's classes: unknown fields are ignored, and a field that a
command prints must be there and be of its type. Headers must have every field that is `@CFNotNull`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from reput.format.commit_log import MessageExt
from reput.format.host import Host
from reput.format.message_id import decode_offset_id
from reput.wings.serve.remoting.commands import Command, ResponseCode
from reput.wings.serve.remoting.requests import RequestCode
from tests.remoting.client import Client, messages

MASTER = "0"
MOST = (1 << 63) - 1
TOOLS_GROUP = "TOOLS_CONSUMER"
_QUEUE_AS_NAME = re.compile(r"(?<=[{,])(\{[^{}]*\})(?=:)")
_PULL_HAS_SUBSCRIPTION = 4


class MqAdminError(Exception):
    """An error that mqadmin prints instead of an answer: `MQClientException`, `MQBrokerException`."""

    def __init__(self, code: int, remark: str | None) -> None:
        super().__init__(code, remark)
        self.code = code
        self.is_offline = code == ResponseCode.CONSUMER_NOT_ONLINE


class MqAdmin:
    """`mqadmin -n ADDRESS`: it asks the name server, then connects to the addresses in its answer."""

    def __init__(self, name_server: Host) -> None:
        self._name_server = name_server

    def cluster_list(self) -> list[list[Any]]:
        """clusterList: a row for each address."""
        info = _json(self._ask(None, RequestCode.GET_BROKER_CLUSTER_INFO))
        rows = []
        for cluster, names in info["clusterAddrTable"].items():
            for name in sorted(names):
                for number, address in info["brokerAddrTable"][name]["brokerAddrs"].items():
                    answer = self._ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
                    table: dict[str, str] = _json(answer)["table"]
                    assert all(isinstance(value, str) for value in table.values())
                    rows.append([cluster, name, int(number), address, *_load(table)])
        return rows

    def topic_list(self) -> dict[str, tuple[str, list[str]]]:
        """topicList -c: cluster and groups by topic."""
        info = _json(self._ask(None, RequestCode.GET_BROKER_CLUSTER_INFO))
        found = {}
        for topic in self._topics():
            name = self._route(topic)["brokerDatas"][0]["brokerName"]
            clusters = [one for one, names in info["clusterAddrTable"].items() if name in names]
            found[topic] = clusters[0], self._groups(topic)
        return found

    def topic_route(self, topic: str) -> list[list[Any]]:
        """topicRoute -l."""
        route = self._route(topic)
        queues = {each["brokerName"]: each for each in route["queueDatas"]}
        return [
            [
                each["cluster"], each["brokerName"], each["brokerAddrs"][MASTER],
                *(_int(queues[each["brokerName"]], name) for name in ("readQueueNums", "writeQueueNums", "perm")),
            ]
            for each in route["brokerDatas"]
        ]  # fmt: skip

    def topic_status(self, topic: str) -> dict[tuple[str, str, int], list[int]]:
        """topicStatus: minimum and maximum offset and time of the last update, by queue."""
        rows: dict[tuple[str, str, int], list[int]] = {}
        for address in self._addresses(topic):
            answer = self._ask(address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
            names = ("minOffset", "maxOffset", "lastUpdateTimestamp")
            rows |= _by_queue(answer, names)
        if not rows:
            raise MqAdminError(-1, "Not found the topic stats info")
        return rows

    def by_key(self, topic: str, key: str) -> list[MessageExt]:
        """queryMsgByKey."""
        found = self._query(topic, key, 64, is_unique=False)
        return _some([one for one in found if one.topic == topic and key in one.keys])

    def by_unique_key(self, topic: str, key: str) -> tuple[MessageExt, dict[str, str]]:
        """queryMsgByUniqueKey: the message, and its state in each group."""
        found = [
            one for one in self._query(topic, key, 32, is_unique=True) if one.unique_key == key
        ]
        first = min(_some(found), key=lambda one: one.store_timestamp)
        return first, self._track(first)

    def by_id(self, message_id: str) -> tuple[MessageExt, dict[str, str]]:
        """queryMsgById: it connects to the host in the id."""
        place = decode_offset_id(message_id)
        fields = {"offset": place.physical_offset}
        answer = self._ask(str(place.store_host), RequestCode.VIEW_MESSAGE_BY_ID, fields)
        (found,) = messages(answer.body)
        return found, self._track(found)

    def by_offset(
        self, topic: str, broker: str, queue_id: int, offset: int
    ) -> tuple[MessageExt, dict[str, str]] | None:
        """queryMsgByOffset."""
        self._come_and_go(topic)
        found, _ = self._pull(topic, broker, queue_id, offset, 1)
        return (found[0], self._track(found[0])) if found else None

    def consumer_progress(self, group: str) -> dict[tuple[str, str, int], list[int]]:
        """consumerProgress -g: broker offset, consumer offset and last time by queue."""
        rows: dict[tuple[str, str, int], list[int]] = {}
        for address in self._addresses(f"%RETRY%{group}"):
            answer = self._ask(address, RequestCode.GET_CONSUME_STATS, {"consumerGroup": group})
            assert isinstance(_json(answer)["consumeTps"], float)
            rows |= _by_queue(answer, ("brokerOffset", "consumerOffset", "lastTimestamp"))
        if not rows:
            raise MqAdminError(ResponseCode.CONSUMER_NOT_ONLINE, "Not found the consumer group")
        return rows

    def all_progress(self) -> dict[str, tuple[int, int]]:
        """consumerProgress: number of clients and sum of the lags by group."""
        found = {}
        for topic in self._topics():
            if not topic.startswith("%RETRY%"):
                continue
            group = topic.removeprefix("%RETRY%")
            clients, lag = 0, 0
            try:
                lag = sum(row[0] - row[1] for row in self.consumer_progress(group).values())
                clients = len(self._connections(group)["connectionSet"])
            except MqAdminError as error:
                if not error.is_offline:
                    raise
            found[group] = clients, lag
        return found

    def print_messages(self, topic: str, tags: str = "*", begin_ms: int = 0) -> list[MessageExt]:
        """printMsg -s -b."""
        self._come_and_go(topic)
        return [
            one
            for broker, queue_id in self._queues(topic)
            for one in self._print(topic, broker, queue_id, tags, begin_ms)
        ]

    def consume(self, topic: str, broker: str, queue_id: int) -> list[MessageExt]:
        """Do as consumeMessage -b -i, which pulls again at the queue's end, and needs an answer without messages."""
        self._come_and_go(topic)
        least, most = self._ends(topic, broker, queue_id)
        found: list[MessageExt] = []
        while least <= most:
            some, least = self._pull(topic, broker, queue_id, least, most - least + 1)
            found += some
            if not some:
                break
        return found

    def _print(
        self, topic: str, broker: str, queue_id: int, tags: str, begin_ms: int
    ) -> Iterable[MessageExt]:
        offset, most = self._ends(topic, broker, queue_id)
        if begin_ms:
            fields = {"topic": topic, "queueId": queue_id, "timestamp": begin_ms}
            asked = self._ask(
                self._address(topic, broker), RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields
            )
            offset = int(asked.fields["offset"])
        while offset < most:
            begin = offset
            some, offset = self._pull(topic, broker, queue_id, offset, 32, tags)
            yield from some
            if offset <= begin:
                break

    def _come_and_go(self, topic: str) -> None:
        """Send the heartbeat of a pull consumer, and unregister it."""
        wanted = {"topic": topic, "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1}
        beat = {
            "clientID": "10.0.0.2@1#2",
            "consumerDataSet": [
                {
                    "groupName": TOOLS_GROUP, "consumeType": "CONSUME_ACTIVELY", "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [wanted], "unitMode": False,
                }
            ],
            "producerDataSet": [{"groupName": "CLIENT_INNER_PRODUCER"}],
        }  # fmt: skip
        left = {"clientID": beat["clientID"], "consumerGroup": TOOLS_GROUP}
        for address in self._addresses(topic):
            with Client(_host(address)) as client:
                for code, fields, body in (
                    (RequestCode.HEART_BEAT, {}, json.dumps(beat).encode()),
                    (RequestCode.UNREGISTER_CLIENT, left, b""),
                ):
                    assert client.ask(code, fields, body).code == ResponseCode.SUCCESS

    def _ends(self, topic: str, broker: str, queue_id: int) -> tuple[int, int]:
        address, fields = self._address(topic, broker), {"topic": topic, "queueId": queue_id}
        least = self._ask(address, RequestCode.GET_MIN_OFFSET, fields)
        most = self._ask(address, RequestCode.GET_MAX_OFFSET, fields)
        return int(least.fields["offset"]), int(most.fields["offset"])

    def _pull(
        self, topic: str, broker: str, queue_id: int, offset: int, most: int, tags: str = "*"
    ) -> tuple[list[MessageExt], int]:
        fields = {
            "consumerGroup": TOOLS_GROUP, "topic": topic, "queueId": queue_id, "queueOffset": offset,
            "maxMsgNums": most, "sysFlag": _PULL_HAS_SUBSCRIPTION, "commitOffset": 0,
            "suspendTimeoutMillis": 20_000, "subscription": tags, "subVersion": 0, "expressionType": "TAG",
        }  # fmt: skip
        with Client(_host(self._address(topic, broker))) as client:
            answer = client.ask(RequestCode.PULL_MESSAGE, fields)
        if answer.code not in (
            ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY,
            ResponseCode.PULL_OFFSET_MOVED,
        ):  # fmt: skip
            raise MqAdminError(answer.code, answer.remark)
        for name in ("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset"):
            int(answer.fields[name])
        found = messages(answer.body) if answer.code == ResponseCode.SUCCESS else []
        return found, int(answer.fields["nextBeginOffset"])

    def _query(self, topic: str, key: str, most: int, is_unique: bool) -> list[MessageExt]:
        fields = {
            "topic": topic, "key": key, "maxNum": most, "beginTimestamp": 0, "endTimestamp": MOST,
            "_UNIQUE_KEY_QUERY": str(is_unique).lower(),
        }  # fmt: skip
        found = []
        for address in self._addresses(topic):
            try:
                answer = self._ask(address, RequestCode.QUERY_MESSAGE, fields)
            except MqAdminError:  # mqadmin logs the error and asks the other brokers
                continue
            int(answer.fields["indexLastUpdateTimestamp"])
            int(answer.fields["indexLastUpdatePhyoffset"])
            found += messages(answer.body)
        return found

    def _track(self, message: MessageExt) -> dict[str, str]:
        """Return the state of a message by group (`messageTrackDetail`)."""
        found = {}
        for group in self._groups(message.topic):
            try:
                connections = self._connections(group)
            except MqAdminError as error:
                if not error.is_offline:
                    raise
                found[group] = "NOT_ONLINE"
                continue
            assert connections["consumeType"] in ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY")
            is_consumed = self._is_consumed(message, group)
            found[group] = "CONSUMED" if is_consumed else "NOT_CONSUME_YET"
        return found

    def _is_consumed(self, message: MessageExt, group: str) -> bool:
        info = _json(self._ask(None, RequestCode.GET_BROKER_CLUSTER_INFO))["brokerAddrTable"]
        return any(
            (topic, queue_id) == (message.topic, message.queue_id)
            and info[broker]["brokerAddrs"][MASTER] == str(message.store_host)
            and consumer_offset > message.queue_offset
            for (topic, broker, queue_id), (_, consumer_offset, _) in self.consumer_progress(
                group
            ).items()
        )

    def _connections(self, group: str) -> Any:
        address = self._addresses(f"%RETRY%{group}")[0]
        fields = {"consumerGroup": group}
        found = _json(self._ask(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, fields))
        assert found["connectionSet"]
        for each in found["connectionSet"]:
            assert each["clientId"]
            assert each["clientAddr"]
            assert _int(each, "version") >= 0
        return found

    def _groups(self, topic: str) -> list[str]:
        address = self._addresses(topic)[0]
        answer = self._ask(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic})
        return list(_json(answer)["groupList"])

    def _topics(self) -> list[str]:
        answer = self._ask(None, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return list(_json(answer)["topicList"])

    def _queues(self, topic: str) -> list[tuple[str, int]]:
        return [
            (each["brokerName"], queue_id)
            for each in self._route(topic)["queueDatas"]
            if each["perm"] & 4
            for queue_id in range(each["readQueueNums"])
        ]

    def _address(self, topic: str, broker: str) -> str:
        datas = self._route(topic)["brokerDatas"]
        return str(next(e["brokerAddrs"][MASTER] for e in datas if e["brokerName"] == broker))

    def _addresses(self, topic: str) -> list[str]:
        return [each["brokerAddrs"][MASTER] for each in self._route(topic)["brokerDatas"]]

    def _route(self, topic: str) -> Any:
        return _json(self._ask(None, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}))

    def _ask(self, address: str | None, code: int, fields: dict[str, Any] | None = None) -> Command:
        with Client(_host(address) if address else self._name_server) as client:
            answer = client.ask(code, fields)
        if answer.code != ResponseCode.SUCCESS:
            raise MqAdminError(answer.code, answer.remark)
        return answer


def _host(address: str) -> Host:
    host, _, port = address.rpartition(":")
    return Host(host, int(port))


def _json(answer: Command) -> Any:
    """Parse JSON; as in fastjson, keys may be objects, which become texts here."""
    text = answer.body.decode()
    return json.loads(_QUEUE_AS_NAME.sub(lambda match: json.dumps(match[1]), text))


def _by_queue(answer: Command, names: tuple[str, ...]) -> dict[tuple[str, str, int], list[int]]:
    found = {}
    for queue, values in _json(answer)["offsetTable"].items():
        name = json.loads(queue)
        place = name["topic"], name["brokerName"], _int(name, "queueId")
        found[place] = [_int(values, one) for one in names]
    return found


def _load(table: dict[str, str]) -> list[Any]:
    """Return the values of a broker that clusterList prints. Check that the values for its option -m are numbers."""
    for name in (
        "msgPutTotalYesterdayMorning", "msgPutTotalTodayMorning", "msgPutTotalTodayNow", "msgGetTotalTodayNow",
        "msgGetTotalYesterdayMorning", "msgGetTotalTodayMorning", "sendThreadPoolQueueSize", "pullThreadPoolQueueSize",
        "sendThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueHeadWaitTimeMills", "pageCacheLockTimeMills",
    ):  # fmt: skip
        int(table[name])
    return [
        table["brokerVersionDesc"],
        float(table["putTps"].split(" ")[0]),
        float(table["getTransferedTps"].split(" ")[0]),
        int(table["earliestMessageTimeStamp"]),
        float(table["commitLogDiskRatio"]),
    ]


def _int(values: dict[str, Any], name: str) -> int:
    value = values[name]
    assert type(value) is int
    return value


def _some(found: list[MessageExt]) -> list[MessageExt]:
    if not found:
        raise MqAdminError(208, "query message by key finished, but no message.")
    return found
