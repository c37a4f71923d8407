"""Answer as a name server (`DefaultRequestProcessor`, `RouteInfoManager`, tag rocketmq-all-4.9.3)."""

from __future__ import annotations

from typing import Any

from reput.format.host import Host
from reput.wings.serve.broker.broker import MASTER_ID, Cluster, ServedBroker
from reput.wings.serve.broker.topics import TopicConfig
from reput.wings.serve.remoting.commands import Command, Refusal, ResponseCode
from reput.wings.serve.remoting.handling import Answer, InThread, Peer, answers
from reput.wings.serve.remoting.requests import RequestCode


class NameServer:
    """Answers name server requests for all brokers of a cluster, on each broker's port."""

    def __init__(self, cluster: Cluster, advertised: str | None = None) -> None:
        """Answer requests for routes to the brokers of `cluster`, and for its topics.

        Routes contain the host `advertised`, or by default the host by which the client reached this server.
        """
        self._cluster, self._advertised = cluster, advertised

    @answers(RequestCode.GET_NAMESRV_CONFIG)
    def _config(self, request: Command, peer: Peer) -> Command:
        lines = ("orderMessageEnable=false", "clusterTest=false")
        return request.answer(body="\n".join(lines).encode())

    @answers(
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    )
    def _no_topics(self, request: Command, peer: Peer) -> Command:
        """Answer requests for unit topics (GET_UNIT_TOPIC_LIST) with an empty list: units are not supported."""
        return request.answer_json({"topicList": []})

    @answers(RequestCode.PUT_KV_CONFIG)
    def _put_value(self, request: Command, peer: Peer) -> Command:
        self._cluster.values.put(
            request.text("namespace"), request.text("key"), request.text("value")
        )
        return request.answer()

    @answers(RequestCode.DELETE_KV_CONFIG)
    def _delete_value(self, request: Command, peer: Peer) -> Command:
        self._cluster.values.delete(request.text("namespace"), request.text("key"))
        return request.answer()

    @answers(RequestCode.DELETE_TOPIC_IN_NAMESRV)
    def _delete_topic(self, request: Command, peer: Peer) -> Command:
        """Answer with success, but do nothing: routes are computed from the brokers' topics."""
        request.text("topic")
        return request.answer()

    @answers(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    def _route(self, request: Command, peer: Peer) -> Command:
        topic = request.text("topic")
        routes = [
            (port, broker, config)
            for port, broker in self._cluster.brokers()
            if (config := broker.topics.get(topic)) is not None
        ]
        if not routes:
            remark = f"No topic route info in name server for the topic: {topic}"
            raise Refusal(remark, ResponseCode.TOPIC_NOT_EXIST)
        content = {
            "brokerDatas": [self._broker_data(port, broker, peer) for port, broker, _ in routes],
            "filterServerTable": {},
            "queueDatas": [_queue_data(broker, config) for _, broker, config in routes],
        }
        return request.answer_json(content)

    @answers(RequestCode.GET_BROKER_CLUSTER_INFO)
    def _cluster_info(self, request: Command, peer: Peer) -> Command:
        brokers = {
            broker.name: self._broker_data(port, broker, peer)
            for port, broker in self._cluster.brokers()
        }
        content = {
            "brokerAddrTable": brokers,
            "clusterAddrTable": {self._cluster.name: list(brokers)},
        }
        return request.answer_json(content)

    @answers(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    def _topics(self, request: Command, peer: Peer) -> Answer:
        views = [broker.topics.view() for _, broker in self._cluster.brokers()]

        def work() -> Command:
            topics = {name for view in views for name in view.names()}
            return request.answer_json({"topicList": sorted(topics)})

        return InThread(work)

    @answers(RequestCode.GET_TOPICS_BY_CLUSTER)
    def _topics_of_cluster(self, request: Command, peer: Peer) -> Answer:
        if request.text("cluster") != self._cluster.name:
            return request.answer_json({"topicList": []})
        return self._topics(request, peer)

    @answers(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    def _system_topics(self, request: Command, peer: Peer) -> Command:
        # Like a name server, list the names of the cluster and of its brokers (`RouteInfoManager.getSystemTopicList`).
        names = [self._cluster.name, *(broker.name for _, broker in self._cluster.brokers())]
        content: dict[str, Any] = {"topicList": names}
        if first := next(self._cluster.brokers(), None):
            content["brokerAddr"] = self._address(first[0], peer)
        return request.answer_json(content)

    @answers(RequestCode.GET_KV_CONFIG)
    def _value(self, request: Command, peer: Peer) -> Command:
        namespace, key = request.text("namespace"), request.text("key")
        value = self._cluster.values.get(namespace).get(key)
        if value is not None:
            return request.answer(fields={"value": value})
        remark = f"No config item, Namespace: {namespace} Key: {key}"
        raise Refusal(remark, ResponseCode.QUERY_NOT_FOUND)

    @answers(RequestCode.GET_KVLIST_BY_NAMESPACE)
    def _values(self, request: Command, peer: Peer) -> Command:
        namespace = request.text("namespace")
        table = self._cluster.values.get(namespace)
        if table:
            return request.answer_json({"table": table})
        raise Refusal(f"No config item, Namespace: {namespace}", ResponseCode.QUERY_NOT_FOUND)

    def _broker_data(self, port: int, broker: ServedBroker, peer: Peer) -> dict[str, Any]:
        return {
            "brokerAddrs": {str(MASTER_ID): self._address(port, peer)},
            "brokerName": broker.name,
            "cluster": self._cluster.name,
        }

    def _address(self, port: int, peer: Peer) -> str:
        return str(Host(self._advertised or peer.server_host, port))


def _queue_data(broker: ServedBroker, config: TopicConfig) -> dict[str, Any]:
    return {
        "brokerName": broker.name,
        "perm": config.perm,
        "readQueueNums": config.read_queues,
        # Older clients read the misspelled name.
        "topicSynFlag": config.sys_flag,
        "topicSysFlag": config.sys_flag,
        "writeQueueNums": config.write_queues,
    }
