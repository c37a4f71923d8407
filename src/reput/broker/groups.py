"""Who consumes and produces: clients by group, and what each group subscribes to.

Mirrors `ConsumerManager`, `ConsumerGroupInfo`, `ProducerManager` (tag rocketmq-all-4.9.3). A client is known by its
connection, whatever that is: it is compared, and handed back, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

from reput.clock import now_ms

SILENT_MS = 120_000
"""A client that has sent no heartbeat for so long is gone."""
TAG_TYPE = "TAG"


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a group wants of a topic; `raw` is what the client sent, for those who ask."""

    topic: str
    expression: str
    expression_type: str
    version: int
    raw: dict[str, Any]

    @property
    def is_by_tag(self) -> bool:
        return self.expression_type in ("", TAG_TYPE)


@dataclass(slots=True)
class Client:
    """One member of a group."""

    connection: Hashable
    client_id: str
    address: str
    language: str
    version: int
    seen_ms: int = 0


@dataclass(slots=True)
class ConsumerGroup:
    """The consumers of a group, and what they have in common."""

    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from: str = "CONSUME_FROM_LAST_OFFSET"
    clients: dict[Hashable, Client] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)

    def subscribe(self, wanted: Iterable[Subscription]) -> bool:
        """Take over what a heartbeat says; whether topics came or went."""
        given = {each.topic: each for each in wanted}
        is_changed = given.keys() != self.subscriptions.keys()
        for topic, each in given.items():
            known = self.subscriptions.get(topic)
            if known is not None and known.version >= each.version:
                given[topic] = known
        self.subscriptions = given
        return is_changed


class ClientGroups:
    """All groups of one broker. `on_change` is called with a group and its connections when its members change."""

    def __init__(
        self,
        on_change: Callable[[str, list[Hashable]], None] = lambda group, connections: None,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self.on_change, self._clock_ms = on_change, clock_ms
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[Hashable, Client]] = {}

    def consumer_group(self, group: str) -> ConsumerGroup | None:
        """A group with consumers; None where it has none."""
        return self._consumers.get(group)

    def producers(self, group: str) -> list[Client]:
        """The producers of a group."""
        return list(self._producers.get(group, {}).values())

    def subscription(self, group: str, topic: str) -> Subscription | None:
        """What a group wants of a topic."""
        found = self._consumers.get(group)
        return found.subscriptions.get(topic) if found else None

    def consumers_of(self, topic: str) -> list[str]:
        """Groups that subscribe to a topic, sorted."""
        return sorted(
            name for name, group in self._consumers.items() if topic in group.subscriptions
        )

    def register_consumer(
        self, group: str, client: Client, found: ConsumerGroup, wanted: Iterable[Subscription]
    ) -> None:
        """A heartbeat of a consumer; `found` has how the group consumes."""
        known = self._consumers.setdefault(group, ConsumerGroup())
        known.consume_type, known.message_model = found.consume_type, found.message_model
        known.consume_from = found.consume_from
        is_new = client.connection not in known.clients
        client.seen_ms = self._clock_ms()
        known.clients[client.connection] = client
        if known.subscribe(wanted) or is_new:
            self.on_change(group, list(known.clients))

    def register_producer(self, group: str, client: Client) -> None:
        """A heartbeat of a producer."""
        client.seen_ms = self._clock_ms()
        self._producers.setdefault(group, {})[client.connection] = client

    def unregister_consumer(self, group: str, connection: Hashable) -> None:
        """A consumer leaves its group."""
        found = self._consumers.get(group)
        if found is None or found.clients.pop(connection, None) is None:
            return
        if found.clients:
            self.on_change(group, list(found.clients))
        else:
            del self._consumers[group]

    def unregister_producer(self, group: str, connection: Hashable) -> None:
        """A producer leaves its group."""
        found = self._producers.get(group, {})
        found.pop(connection, None)
        if not found:
            self._producers.pop(group, None)

    def disconnect(self, connection: Hashable) -> None:
        """A connection has ended, and with it its client's part in every group."""
        for group in [name for name, g in self._consumers.items() if connection in g.clients]:
            self.unregister_consumer(group, connection)
        for group in [name for name, found in self._producers.items() if connection in found]:
            self.unregister_producer(group, connection)

    def forget_silent(self) -> None:
        """Drop the clients that send no heartbeats."""
        since = self._clock_ms() - SILENT_MS
        for group, found in list(self._consumers.items()):
            for client in [each for each in found.clients.values() if each.seen_ms < since]:
                self.unregister_consumer(group, client.connection)
        for group, clients in list(self._producers.items()):
            for client in [each for each in clients.values() if each.seen_ms < since]:
                self.unregister_producer(group, client.connection)
