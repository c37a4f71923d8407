"""Answer mqadmin's requests about topics, groups and the broker itself (`AdminBrokerProcessor`, 4.9.3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from reput.base import now_ms, usable_cpus
from reput.errors import MessageNotFoundError, StoreAccessError
from reput.format.file_names import COMMIT_LOG_FOLDER
from reput.format.properties import SCHEDULE_TOPIC, SYSTEM_TOPICS, TRACE_TOPIC
from reput.format.untrusted_json import number_map_file
from reput.io import Disk
from reput.wings.serve.broker.broker import MASTER_ID, ServedBroker
from reput.wings.serve.broker.delays import delay_offsets
from reput.wings.serve.broker.groups import Client
from reput.wings.serve.broker.limits import LimitError, check_name
from reput.wings.serve.broker.locks import MessageQueue
from reput.wings.serve.broker.topics import PERM_READ, PERM_WRITE
from reput.wings.serve.remoting.bodies import queue_as_json, queue_map
from reput.wings.serve.remoting.commands import VERSION, Command, Refusal, ResponseCode, encode_body
from reput.wings.serve.remoting.handling import Answer, InThread, Peer, answers
from reput.wings.serve.remoting.requests import RequestCode
from reput.wings.serve.remoting.rights import PUB, SUB

_VERSION_5 = 479
"""The number that stands for version 5.3.3."""
_MOST_IN_PAGE = 2000  # The default of a broker's splitMetadataSize.
_VERSION_NAME, _VERSION_NAME_5 = "V4_9_3", "V5_3_3"


class Statistics:
    """Answers requests about one broker."""

    def __init__(self, broker: ServedBroker, is_synced: bool = False) -> None:
        self._broker, self._is_synced, self._begun_ms = broker, is_synced, now_ms()

    @answers(RequestCode.GET_TOPIC_CONFIG)
    def _topic_config(self, request: Command, peer: Peer) -> Command:
        topic = request.text("topic")
        config = self._broker.topics.get(topic)
        if config is None:
            raise Refusal(f"No topic in this broker. topic: {topic}", ResponseCode.TOPIC_NOT_EXIST)
        return request.answer_json({"attributes": {}, **config.as_json()})

    @answers(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG)
    def _group_config(self, request: Command, peer: Peer) -> Command:
        group = request.text("group")
        check_name(group, "group")
        return request.answer_json(self._broker.subscriptions.get(group).as_json())

    @answers(RequestCode.QUERY_TOPICS_BY_CONSUMER)
    def _topics_of_group(self, request: Command, peer: Peer) -> Answer:
        group = request.text("group")
        address = f"{peer.server_host}:{self._broker.port}"

        def work() -> Command:
            topics = [
                name
                for name in self._broker.offsets.topics_of(group)
                if request.rights.may(name, SUB)
            ]
            return request.answer_json({"brokerAddr": address, "topicList": topics})

        return InThread(work)

    @answers(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER)
    def _subscription(self, request: Command, peer: Peer) -> Command:
        group, topic = request.text("group"), request.text("topic")
        subscription = self._broker.groups.subscription(group, topic)
        content: dict[str, Any] = {"group": group, "topic": topic}
        if subscription is not None:
            content["subscriptionData"] = msgspec.Raw(subscription.raw)
        return request.answer_json(content)

    @answers(RequestCode.GET_ALL_PRODUCER_INFO)
    def _all_producers(self, request: Command, peer: Peer) -> Answer:
        groups = self._broker.groups.all_producers()

        def work() -> Command:
            table = {name: list(map(_producer, clients)) for name, clients in groups.items()}
            return request.answer_json({"data": table})

        return InThread(work)

    @answers(RequestCode.GET_ALL_DELAY_OFFSET)
    def _delay_offsets(self, request: Command, peer: Peer) -> Answer:
        def work() -> Command:
            return request.answer(body=number_map_file("offsetTable", self._delivered()))

        return InThread(work)

    def _delivered(self) -> dict[int, int]:
        """Return the delivery progress of each delay level. Raises StoreAccessError, FormatError."""
        written = self._broker.written
        if written is not None:
            return written.delays.offsets()
        return delay_offsets(Path(self._broker.store.path)) if self._broker.is_quick else {}

    def _delayed(self) -> dict[str, str]:
        """Return the delivery progress and the end of each delay level's queue."""
        return {
            f"scheduleMessageOffset_{level}": f"{offset},{self._broker.max_offset(SCHEDULE_TOPIC, level - 1)}"
            for level, offset in self._delivered().items()
        }

    @answers(RequestCode.GET_BROKER_CONSUME_STATS)
    def _all_consume_stats(self, request: Command, peer: Peer) -> Answer:
        is_order, view = request.boolean("isOrder"), self._broker.topics.view()
        groups = [group_config.name for group_config in self._broker.subscriptions.configs()]
        address = f"{peer.server_host}:{self._broker.port}"

        def work() -> Command:
            budget, total, rows = self._broker.limits.answer_bytes // _LAG_BYTES, 0, list[Any]()
            for group in groups:
                stats = []
                for name in self._broker.offsets.topics_of(group):
                    config = view.get(name)
                    if config is None or (is_order and not config.is_ordered):
                        continue
                    budget -= config.write_queues
                    if budget < 0:
                        raise LimitError("the groups have more queues than one answer can hold")
                    lags = list(self._lags(group, name, config.write_queues))
                    total += sum(lag["brokerOffset"] - lag["consumerOffset"] for _, lag in lags)
                    tps = self._broker.counters.group_get_tps(group, name)
                    stats.append({"consumeTps": tps, "offsetTable": queue_map(lags)})
                rows.append({group: stats})
            content = {
                "brokerAddr": address, "consumeStatsList": rows, "totalDiff": total,
                "totalInflightDiff": 0,
            }  # fmt: skip
            return request.answer_json(content)

        return InThread(work)

    def _lags(
        self, group: str, topic: str, queues: int
    ) -> Iterator[tuple[MessageQueue, dict[str, int]]]:
        for queue in self._queues(topic, queues):
            committed = self._broker.offsets.committed(group, topic, queue.queue_id)
            yield queue, self._lag(queue, committed, group)

    @answers(RequestCode.VIEW_BROKER_STATS_DATA)
    def _stats_data(self, request: Command, peer: Peer) -> Command:
        name, key = request.text("statsName"), request.text("statsKey")
        rates = self._broker.counters.rates(name, key, self._broker.cluster)
        if rates is None:
            raise Refusal(f"The stats <{name}> <{key}> not exist")
        content = {
            field: {"sum": rate.sum, "tps": rate.tps, "avgpt": rate.average}
            for field, rate in zip(("statsMinute", "statsHour", "statsDay"), rates, strict=True)
        }
        return request.answer_json(content)

    @answers(RequestCode.GET_TOPIC_STATS_INFO)
    def _topic_stats(self, request: Command, peer: Peer) -> Answer:
        config = self._broker.topics.get(request.text("topic"))
        if config is None:
            return _no_topic(request)

        def work() -> Command:
            table = (
                (queue, self._queue_stats(queue))
                for queue in self._queues(config.name, config.write_queues)
            )
            return request.answer_json({"offsetTable": queue_map(table)})

        return InThread(work)

    def _queue_stats(self, queue: MessageQueue) -> dict[str, int]:
        topic, queue_id = queue.topic, queue.queue_id
        end = self._broker.max_offset(topic, queue_id)
        last = self._broker.store_time(topic, queue_id, end - 1) if end else 0
        return {
            "lastUpdateTimestamp": max(last, 0),
            "maxOffset": end,
            "minOffset": self._broker.min_offset(topic, queue_id, check=False),
        }

    @answers(RequestCode.GET_CONSUME_STATS)
    def _consume_stats(self, request: Command, peer: Peer) -> Answer:
        group, topic = request.text("consumerGroup"), request.optional_text("topic")
        consumers, view = self._broker.groups.consumer_group(group), self._broker.topics.view()
        subscriptions = consumers.subscriptions if consumers else {}

        def work() -> Command:
            offsets, positions = self._broker.offsets, list[tuple[MessageQueue, int | None]]()
            names = [topic] if topic and topic.strip() else offsets.topics_of(group)
            for name in names:
                config = view.get(name) if request.rights.may(name, SUB) else None
                # Like a broker, exclude topics to which a connected group no longer subscribes.
                if config is not None and (not subscriptions or name in subscriptions):
                    for queue in self._queues(name, config.read_queues):
                        positions.append((queue, offsets.committed(group, name, queue.queue_id)))
            table = ((queue, self._lag(queue, committed, group)) for queue, committed in positions)
            counters = self._broker.counters
            tps = sum(counters.group_get_tps(group, name) for name in names)
            content = {"consumeTps": float(tps), "offsetTable": queue_map(table)}
            return request.answer_json(content)

        return InThread(work)

    def _lag(self, queue: MessageQueue, committed: int | None, group: str) -> dict[str, int]:
        end = self._broker.max_offset(queue.topic, queue.queue_id)
        position = max(committed or 0, 0)
        time_of_last = 0
        if position:
            # The committed offset is that of the next message, so subtract one.
            time_of_last = self._broker.store_time(queue.topic, queue.queue_id, position - 1)
        lag = {
            "brokerOffset": end,
            "consumerOffset": position,
            "lastTimestamp": max(time_of_last, 0),
        }
        if self._broker.is_five:
            pulled = self._broker.pulled.get(group, queue.topic, queue.queue_id)
            lag["pullOffset"] = max(position, pulled)
        return lag

    @answers(RequestCode.QUERY_CONSUME_TIME_SPAN)
    def _time_span(self, request: Command, peer: Peer) -> Answer:
        group, topic = request.text("group"), request.text("topic")
        config = self._broker.topics.get(topic)
        if config is None:
            return _no_topic(request)

        def work() -> Command:
            spans = [
                self._span(queue, self._broker.offsets.committed(group, topic, queue.queue_id) or 0)
                for queue in self._queues(topic, config.write_queues)
            ]
            return request.answer_json({"consumeTimeSpanSet": spans})

        return InThread(work)

    def _span(self, queue: MessageQueue, committed: int) -> dict[str, Any]:
        broker, topic, queue_id = self._broker, queue.topic, queue.queue_id
        end = broker.max_offset(topic, queue_id)
        first = broker.store_time(topic, queue_id, broker.min_offset(topic, queue_id, check=False))
        consumed = broker.store_time(topic, queue_id, committed - 1) if committed > 0 else first
        delay = 0
        if committed < end:
            delay = now_ms() - broker.store_time(topic, queue_id, committed)
        return {
            "consumeTimeStamp": consumed,
            "delayTime": delay,
            "maxTimeStamp": broker.store_time(topic, queue_id, end - 1) if end else -1,
            "messageQueue": queue_as_json(queue),
            "minTimeStamp": first,
        }

    @answers(RequestCode.GET_BROKER_RUNTIME_INFO)
    def _runtime_info(self, request: Command, peer: Peer) -> Answer:
        store, behind = self._broker.store, 0
        if self._broker.writable is not None:
            behind = self._broker.writable.dispatch_lag_bytes

        def work() -> Command:
            used_ratio, disk = 0.0, dict[str, str]()
            with suppress(StoreAccessError):  # A remote store has no disk usage.
                used, free = Disk().usage(Path(store.path))
                used_ratio = used / max(used + free, 1)
                disk = _disk(Path(store.path), used, free)
            begin = store.begin_offset()
            try:
                earliest = store.get(begin).store_timestamp
            except MessageNotFoundError:
                earliest = -1
            table = {
                **dict.fromkeys(_ZEROS, "0"),
                **(_ONLY_OF_FIVE if self._broker.is_five else {}),
                **disk,
                **self._delayed(),
                **self._broker.counters.as_table(),
                "bootTimestamp": str(self._begun_ms),
                "brokerVersion": str(_VERSION_5 if self._broker.is_five else VERSION),
                "brokerVersionDesc": _VERSION_NAME_5 if self._broker.is_five else _VERSION_NAME,
                "commitLogDiskRatio": str(used_ratio),
                "consumeQueueDiskRatio": str(used_ratio),
                "commitLogMaxOffset": str(store.end_offset()),
                "commitLogMinOffset": str(begin),
                "dispatchBehindBytes": str(behind),
                "earliestMessageTimeStamp": str(earliest),
                "remainHowManyDataToFlush": "0 B",
                # The value of a broker without a TransientStorePool.
                "remainTransientStoreBufferNumbs": str(_NEVER),
                "runtime": _runtime(now_ms() - self._begun_ms),
                "startAcceptSendRequestTimeStamp": "0",
            }
            return request.answer_json({"table": table})

        return InThread(work)

    @answers(RequestCode.GET_BROKER_CONFIG)
    def _config(self, request: Command, peer: Peer) -> Command:
        """Answer with a broker's settings that have a counterpart here."""
        broker, config = self._broker, self._broker.store.config
        is_written = broker.writable is not None
        settings: dict[str, object] = {
            "autoCreateSubscriptionGroup": True,
            "autoCreateTopicEnable": is_written,
            "brokerClusterName": broker.cluster,
            "brokerIP1": peer.server_host,
            "brokerId": MASTER_ID,
            "brokerName": broker.name,
            "brokerPermission": PERM_READ | (PERM_WRITE if is_written else 0),
            "brokerRole": "ASYNC_MASTER",
            "clientCallbackExecutorThreads": usable_cpus(),
            "enablePropertyFilter": broker.has_sql_filters,
            "fileReservedTime": _NEVER,
            "filterServerNums": 0,
            "flushDiskType": "SYNC_FLUSH" if self._is_synced else "ASYNC_FLUSH",
            "listenPort": broker.port,
            "mappedFileSizeCommitLog": config.commit_log_file_bytes,
            "mappedFileSizeConsumeQueue": config.queue_file_bytes,
            "maxHashSlotNum": config.hash_slots,
            "maxIndexNum": config.index_items,
            "maxMessageSize": config.max_message_bytes,
            "messageDelayLevel": config.delay_levels,
            "msgTraceTopicName": TRACE_TOPIC,
            "slaveReadEnable": False,
            "traceOn": True,
            "traceTopicEnable": True,
            "useTLS": broker.is_encrypted,
        }
        texts = (f"{name}={_text_of(value)}" for name, value in settings.items())
        version = encode_body({"counter": 0, "timestamp": self._begun_ms})
        return request.answer(fields={"version": version.decode()}, body="\n".join(texts).encode())

    @answers(RequestCode.GET_ALL_TOPIC_CONFIG)
    def _topic_configs(self, request: Command, peer: Peer) -> Answer:
        view, version = self._broker.topics.view(), self._broker.topics.data_version()
        rights = request.rights

        def work() -> Command:
            configs = {
                config.name: config
                for config in view.configs()
                if rights.may(config.name, PUB | SUB)
            }
            names = _page(request, "topicSeq", "maxTopicNum", configs, version)
            table = {name: configs[name].as_json() for name in names}
            content = {"dataVersion": version, "topicConfigTable": table}
            fields = {"totalTopicNum": str(len(configs))}
            return request.answer(fields=fields, body=encode_body(content))

        return InThread(work)

    @answers(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    def _group_configs(self, request: Command, peer: Peer) -> Answer:
        def work() -> Command:
            groups = {
                group.name: group
                for group in self._broker.subscriptions.configs()
                if request.rights.may_group(group.name)
            }
            version = self._broker.subscriptions.data_version()
            names = _page(request, "groupSeq", "maxGroupNum", groups, version)
            table = {name: groups[name].as_json() for name in names}
            content = {"dataVersion": version, "subscriptionGroupTable": table}
            fields = {"totalGroupNum": str(len(groups))}
            return request.answer(fields=fields, body=encode_body(content))

        return InThread(work)

    @answers(RequestCode.GET_ALL_CONSUMER_OFFSET)
    def _all_offsets(self, request: Command, peer: Peer) -> Answer:
        may = request.rights
        encode = self._broker.offsets.snapshot(
            lambda topic, group: may.may(topic, SUB) and may.may_group(group)
        )
        return InThread(lambda: request.answer(body=encode()))

    @answers(RequestCode.GET_CONSUMER_CONNECTION_LIST)
    def _consumers(self, request: Command, peer: Peer) -> Answer:
        group = request.text("consumerGroup")
        consumers = self._broker.groups.consumer_group(group)
        if consumers is None:
            remark = f"the consumer group[{group}] not online"
            raise Refusal(remark, ResponseCode.CONSUMER_NOT_ONLINE)
        clients, subscriptions = list(consumers.clients.values()), consumers.subscriptions

        def work() -> Command:
            content = {
                "connectionSet": list(map(_connection, clients)),
                "consumeFromWhere": consumers.consume_from,
                "consumeType": consumers.consume_type,
                "messageModel": consumers.message_model,
                "subscriptionTable": {
                    name: msgspec.Raw(subscription.raw)
                    for name, subscription in subscriptions.items()
                },
            }
            return request.answer_json(content)

        return InThread(work)

    @answers(RequestCode.GET_PRODUCER_CONNECTION_LIST)
    def _producers(self, request: Command, peer: Peer) -> Answer:
        group = request.text("producerGroup")
        producers = self._broker.groups.producers(group)
        if not producers:
            raise Refusal(f"the producer group[{group}] not exist")

        def work() -> Command:
            return request.answer_json({"connectionSet": list(map(_connection, producers))})

        return InThread(work)

    @answers(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO)
    def _groups_of_topic(self, request: Command, peer: Peer) -> Answer:
        topic, broker = request.text("topic"), self._broker

        def work() -> Command:
            groups = {*broker.groups.consumers_of(topic), *broker.offsets.groups_of(topic)}
            readable = sorted(filter(request.rights.may_group, groups))
            return request.answer_json({"groupList": readable})

        return InThread(work)

    @answers(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    def _system_topics(self, request: Command, peer: Peer) -> Command:
        return request.answer_json({"topicList": sorted(SYSTEM_TOPICS)})

    def _queues(self, topic: str, count: int) -> Iterator[MessageQueue]:
        return (MessageQueue(topic, self._broker.name, queue_id) for queue_id in range(count))


_NEVER = (1 << 31) - 1
_LAG_BYTES = 150
"""Approximate bytes that an answer needs for each queue of a group."""
_ZEROS = (
    "sendThreadPoolQueueSize", "sendThreadPoolQueueCapacity", "pullThreadPoolQueueSize",
    "pullThreadPoolQueueCapacity", "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueHeadWaitTimeMills", "queryThreadPoolQueueHeadWaitTimeMills",
    "pageCacheLockTimeMills", "queryThreadPoolQueueSize", "queryThreadPoolQueueCapacity",
    "EndTransactionQueueSize", "EndTransactionThreadPoolQueueCapacity", "dispatchMaxBuffer",
)  # fmt: skip
"""Statistics of a broker's internal queues and locks. This server has none, but tools expect numbers: report zeros."""
_ONLY_OF_FIVE = {
    "brokerActive": "true",
    **dict.fromkeys(
        (
            "ackThreadPoolQueueHeadWaitTimeMills", "ackThreadPoolQueueSize", "ackThreadPoolQueueCapacity",
            "litePullThreadPoolQueueHeadWaitTimeMills", "litePullThreadPoolQueueSize",
            "litePullThreadPoolQueueCapacity",
        ),
        "0",
    ),
}  # fmt: skip


def _page(
    request: Command, first: str, most: str, names: Iterable[str], version: dict[str, int]
) -> list[str]:
    """Return the names of the page of topics or groups that a client of 5.4 requests; all names for another client.

    A page begins at a position in the order of the names. If the table has changed since the client's earlier page, the
    first page is returned, and the client begins again (`TopicConfigManager.subTopicConfigTable`).

    Args:
        request: The request.
        first: The request's field with the position.
        most: The request's field with the number of names.
        names: The names of all topics or groups.
        version: The version of the table.

    Raises:
        FieldError: A field is not a number.
    """
    seen = request.optional_text("dataVersion")
    if seen is None and not request.fields.keys() & {first, most}:
        return sorted(names)
    begin = max(request.int32(first, 0), 0) if _is_version(seen or "", version) else 0
    count = min(max(request.int32(most, _MOST_IN_PAGE), 1), _MOST_IN_PAGE)
    return sorted(names)[begin : begin + count]


def _is_version(text: str, version: dict[str, int]) -> bool:
    try:
        seen = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return isinstance(seen, dict) and all(seen.get(name) == version[name] for name in version)


def _disk(store: Path, used: int, free: int) -> dict[str, str]:
    """Return the lines about the file system of a log, as a broker writes them."""
    gib = 1 << 30
    total = (used + free) / gib
    return {
        "commitLogDirCapacity": f"Total : {total:.1f} GiB, Free : {free / gib:.1f} GiB.",
        f"commitLogDiskRatio_{store / COMMIT_LOG_FOLDER}": str(used / max(used + free, 1)),
    }


def _text_of(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _runtime(ms: int) -> str:
    """Return a time as a broker writes it: `[ 0 days, 0 hours, 8 minutes, 36 seconds ]`."""
    minutes, seconds = divmod(ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _producer(client: Client) -> dict[str, Any]:
    return {
        "clientId": client.client_id,
        "language": client.language,
        "lastUpdateTimestamp": client.seen_ms,
        "remoteIP": f"/{client.address}",
        "version": client.version,
    }


def _no_topic(request: Command) -> Command:
    return request.answer(ResponseCode.TOPIC_NOT_EXIST, f"topic[{request.text('topic')}] not exist")


def _connection(client: Client) -> dict[str, Any]:
    return {
        "clientAddr": client.address,
        "clientId": client.client_id,
        "language": client.language,
        "version": client.version,
    }
