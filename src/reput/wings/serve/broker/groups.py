"""Keep consumer and producer groups: their clients, their subscriptions, and their settings in config/.

Mirrors `ConsumerManager`, `ConsumerGroupInfo`, `ProducerManager` (tag rocketmq-all-4.9.3). A client is identified by
its connection, which may be any object: this module only compares it and returns it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from reput.base import now_ms
from reput.core import settings_in_rocksdb
from reput.errors import FormatError
from reput.format.file_names import SUBSCRIPTION_GROUP_FILE
from reput.format.untrusted_json import java_json_file
from reput.wings.serve.broker.config_file import ConfigFile
from reput.wings.serve.broker.limits import LimitError, Limits, NameRefusedError, check_name

SILENT_MS = 120_000
"""Time without a heartbeat after which a client is removed, in ms."""
TAG_TYPE = "TAG"
_TABLE = "subscriptionGroupTable"
_MOST_RETRY_QUEUES = 1024


@dataclass(frozen=True, slots=True)
class TopicSubscription:
    """The subscription of a group to a topic. `raw` is the client's own JSON, which tools receive."""

    topic: str
    expression: str
    expression_type: str
    version: int
    raw: bytes

    @property
    def is_by_tag(self) -> bool:
        return self.expression_type in ("", TAG_TYPE)


@dataclass(slots=True)
class Client:
    """One member of a group.

    Attributes:
        may_send: Returns whether the client may send to a topic.
        owner: Account with which the client is connected; empty without accounts.
    """

    connection: Hashable
    client_id: str
    address: str
    language: str
    version: int
    seen_ms: int = 0
    may_send: Callable[[str], bool] = lambda topic: True
    owner: str = ""


@dataclass(slots=True)
class ConsumerGroup:
    """The consumers of a group, and their common settings."""

    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from: str = "CONSUME_FROM_LAST_OFFSET"
    clients: dict[Hashable, Client] = field(default_factory=dict)
    subscriptions: dict[str, TopicSubscription] = field(default_factory=dict)

    @property
    def held_bytes(self) -> int:
        """Size of the group's subscriptions."""
        return sum(len(subscription.raw) for subscription in self.subscriptions.values())

    def subscribe(self, subscriptions: Sequence[TopicSubscription]) -> bool:
        """Apply the subscriptions of a heartbeat. Return whether topics were added or removed."""
        by_topic = {subscription.topic: subscription for subscription in subscriptions}
        is_changed = by_topic.keys() != self.subscriptions.keys()
        for topic, subscription in by_topic.items():
            current = self.subscriptions.get(topic)
            # Members may send different subscriptions. The newest one counts (`ConsumerGroupInfo`).
            if current is not None and current.version >= subscription.version:
                by_topic[topic] = current
        self.subscriptions = by_topic
        return is_changed


@dataclass(frozen=True, slots=True)
class Joining:
    """One consumer group in a heartbeat: its settings and its subscriptions."""

    group: str
    settings: ConsumerGroup
    subscriptions: Sequence[TopicSubscription]

    @property
    def held_bytes(self) -> int:
        return sum(len(subscription.raw) for subscription in self.subscriptions)


@dataclass(slots=True)
class _Membership:
    """The groups of one connection. `consumers` has the number and size of each consumer group's subscriptions."""

    consumers: dict[str, tuple[int, int]] = field(default_factory=dict)
    producers: set[str] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.consumers) + len(self.producers)


class ClientGroups:
    """All groups of one broker. When the members of a group change, `on_change` gets the group and its connections."""

    def __init__(
        self,
        on_change: Callable[[str, list[Hashable]], None] = lambda group, connections: None,
        clock_ms: Callable[[], int] = now_ms,
        limits: Limits | None = None,
    ) -> None:
        self.on_change, self._clock_ms, self._limits = on_change, clock_ms, limits or Limits()
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[Hashable, Client]] = {}
        self._memberships: dict[Hashable, _Membership] = {}
        self._by_client_id: dict[str, Client] = {}
        self._members = self._held_bytes = 0

    def consumer_group(self, group: str) -> ConsumerGroup | None:
        """Return a consumer group, or None if it has no consumers."""
        return self._consumers.get(group)

    def producers(self, group: str) -> list[Client]:
        """Return the producers of a group."""
        return list(self._producers.get(group, {}).values())

    def producer(self, client_id: str) -> Client | None:
        """Return the producer with a client id. If several have this id, return the newest."""
        return self._by_client_id.get(client_id)

    def all_producers(self) -> dict[str, list[Client]]:
        """Return the producers of all groups, by group."""
        return {group: list(clients.values()) for group, clients in self._producers.items()}

    def subscription(self, group: str, topic: str) -> TopicSubscription | None:
        """Return a group's subscription to a topic, or None."""
        consumers = self._consumers.get(group)
        return consumers.subscriptions.get(topic) if consumers else None

    def consumers_of(self, topic: str) -> list[str]:
        """Return the groups that subscribe to a topic, sorted. Any thread may call this."""
        # Iterate over a copy, because the event loop may change the groups meanwhile.
        groups = list(self._consumers.items())
        return sorted(name for name, group in groups if topic in group.subscriptions)

    def register(
        self, client: Client, joining: Sequence[Joining], producers: Sequence[str] = ()
    ) -> None:
        """Apply a heartbeat completely, or raise LimitError or NameRefusedError and change nothing."""
        for name in (*(join.group for join in joining), *producers):
            check_name(name, "group")
        self._check_limits(client.connection, joining, producers)
        if not joining and not producers:
            return
        peers = self._by_client_id.get(client.client_id)
        if producers and peers is not None and peers.owner != client.owner:
            # If two accounts used the same client id, replies to requests of one would go to the other.
            raise NameRefusedError(f"the client id {client.client_id} belongs to another account")
        client.seen_ms = self._clock_ms()
        membership = self._memberships.setdefault(client.connection, _Membership())
        self._members -= len(membership)
        for join in joining:
            membership.consumers[join.group] = len(join.subscriptions), join.held_bytes
            self._register_consumer(client, join)
        for group in producers:
            membership.producers.add(group)
            self._producers.setdefault(group, {})[client.connection] = client
            self._by_client_id[client.client_id] = client
        self._members += len(membership)

    def _check_limits(
        self, connection: Hashable, joining: Sequence[Joining], producers: Sequence[str]
    ) -> None:
        limits, membership = self._limits, self._memberships.get(connection, _Membership())
        after = membership.consumers | {
            join.group: (len(join.subscriptions), join.held_bytes) for join in joining
        }
        groups = len(after) + len(membership.producers | set(producers))
        subscriptions = sum(count for count, _ in after.values())
        held_bytes = sum(size for _, size in after.values())
        new_bytes = sum(join.held_bytes for join in joining)
        for name, number, most in (
            ("groups of a connection", groups, limits.groups),
            ("subscriptions of a connection", subscriptions, limits.subscriptions),
            ("bytes of a connection's subscriptions", held_bytes, limits.registered_bytes),
            ("members of groups", self._members + groups - len(membership), limits.members),
            ("bytes of subscriptions", self._held_bytes + new_bytes, limits.total_registered_bytes),
        ):
            if number > most:
                raise LimitError(f"{number} {name}: at most {most} are allowed")

    def _register_consumer(self, client: Client, joining: Joining) -> None:
        settings = joining.settings
        consumers = self._consumers.setdefault(joining.group, ConsumerGroup())
        consumers.consume_type, consumers.message_model = (
            settings.consume_type,
            settings.message_model,
        )
        consumers.consume_from = settings.consume_from
        is_new = client.connection not in consumers.clients
        consumers.clients[client.connection] = client
        self._held_bytes -= consumers.held_bytes
        is_changed = consumers.subscribe(joining.subscriptions)
        self._held_bytes += consumers.held_bytes
        if is_changed or is_new:
            self.on_change(joining.group, list(consumers.clients))

    def unregister_consumer(self, group: str, connection: Hashable) -> None:
        """Remove a consumer from its group."""
        consumers = self._consumers.get(group)
        if consumers is None or consumers.clients.pop(connection, None) is None:
            return
        self._memberships[connection].consumers.pop(group)
        self._remove_connection(connection)
        if consumers.clients:
            self.on_change(group, list(consumers.clients))
        else:
            self._held_bytes -= consumers.held_bytes
            del self._consumers[group]

    def unregister_producer(self, group: str, connection: Hashable) -> None:
        """Remove a producer from its group."""
        producers = self._producers.get(group, {})
        client = producers.pop(connection, None)
        if client is None:
            return
        peers = self._by_client_id.get(client.client_id)
        # A newer connection of the same client may have replaced this one.
        if peers is not None and peers.connection == connection:
            del self._by_client_id[client.client_id]
        self._memberships[connection].producers.discard(group)
        self._remove_connection(connection)
        if not producers:
            self._producers.pop(group, None)

    def _remove_connection(self, connection: Hashable) -> None:
        self._members -= 1
        if not len(self._memberships[connection]):
            del self._memberships[connection]

    def disconnect(self, connection: Hashable) -> None:
        """Remove the client of a closed connection from every group."""
        membership = self._memberships.get(connection, _Membership())
        for group in list(membership.consumers):
            self.unregister_consumer(group, connection)
        for group in list(membership.producers):
            self.unregister_producer(group, connection)

    def forget_silent(self) -> None:
        """Remove clients that send no heartbeats."""
        since = self._clock_ms() - SILENT_MS
        for group, consumers in list(self._consumers.items()):
            for client in [
                member for member in consumers.clients.values() if member.seen_ms < since
            ]:
                self.unregister_consumer(group, client.connection)
        for group, clients in list(self._producers.items()):
            for client in [member for member in clients.values() if member.seen_ms < since]:
                self.unregister_producer(group, client.connection)


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The settings of a group: its permissions, and the number of retries before a message becomes a dead letter."""

    name: str
    may_consume: bool = True
    may_broadcast: bool = True
    retry_queues: int = 1
    most_retries: int = 16
    other_fields: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Further settings in subscriptionGroup.json or from an admin tool. They are not used, and are kept unchanged."""

    def as_json(self) -> dict[str, Any]:
        """Return the settings as the JSON object that clients expect."""
        return {
            "brokerId": 0,
            "consumeFromMinEnable": True,
            "notifyConsumerIdsChangedEnable": True,
            "whichBrokerWhenConsumeSlowly": 1,
            **self.other_fields,
            "consumeBroadcastEnable": self.may_broadcast,
            "consumeEnable": self.may_consume,
            "groupName": self.name,
            "retryMaxTimes": self.most_retries,
            "retryQueueNums": self.retry_queues,
        }

    @classmethod
    def of_json(cls, name: str, fields: Mapping[str, Any]) -> GroupConfig:
        """Parse a group. Raises ValueError, TypeError, AttributeError if it is malformed."""
        return cls(
            name,
            bool(fields.get("consumeEnable", True)),
            bool(fields.get("consumeBroadcastEnable", True)),
            min(max(int(fields.get("retryQueueNums", 1)), 0), _MOST_RETRY_QUEUES),
            int(fields.get("retryMaxTimes", 16)),
            {name: value for name, value in fields.items() if name not in _FIELDS},
        )


_FIELDS = {
    "consumeBroadcastEnable", "consumeEnable", "groupName", "retryMaxTimes", "retryQueueNums",
}  # fmt: skip


_INT32, _INT64 = 1 << 31, 1 << 63
# Maximum size of one group's settings. It keeps a file with the maximum number of groups short enough to be read.
_MOST_CONFIG_BYTES = 1024
_KINDS: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(
        ("brokerId", "whichBrokerWhenConsumeSlowly"),
        lambda value: type(value) is int and -_INT64 <= value < _INT64,
    ),
    **dict.fromkeys(
        ("groupSysFlag", "consumeTimeoutMinute", "retryMaxTimes", "retryQueueNums"),
        lambda value: type(value) is int and -_INT32 <= value < _INT32,
    ),
    **dict.fromkeys(
        (
            "consumeFromMinEnable", "notifyConsumerIdsChangedEnable", "consumeMessageOrderly",
            "consumeEnable", "consumeBroadcastEnable",
        ),
        lambda value: isinstance(value, bool),
    ),
    "groupName": lambda value: isinstance(value, str),
    "groupRetryPolicy": lambda value: isinstance(value, dict),
    "attributes": lambda value: (
        isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
    ),
}  # fmt: skip
"""For each field that tools send (`SubscriptionGroupConfig`, 5.3.3), a check whether a broker can read its value."""


def group_of_tool(fields: Mapping[str, Any]) -> GroupConfig:
    """Return the settings of a group that a tool has sent, without the fields that a broker does not know.

    Raises:
        ValueError: A broker could not read a field.
        LimitError: The settings are too long.
        NameRefusedError: A broker would refuse the name.
    """
    checked_fields = {
        name: value for name, value in fields.items() if name in _KINDS and value is not None
    }
    for name, value in checked_fields.items():
        if not _KINDS[name](value):
            raise ValueError(f"{name} has the wrong type")
    if "groupName" not in checked_fields:
        raise ValueError("groupName is missing")
    check_name(checked_fields["groupName"], "group")
    config = GroupConfig.of_json(checked_fields["groupName"], checked_fields)
    try:
        size = len(java_json_file({_TABLE: {config.name: config.as_json()}}))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if size > _MOST_CONFIG_BYTES:
        raise LimitError(
            f"the settings of a group take {size} bytes: at most {_MOST_CONFIG_BYTES} are allowed"
        )
    return config


class SubscriptionGroups:
    """The settings of one store's groups. Any thread may use them."""

    def __init__(
        self,
        store: Path,
        is_writable: bool = False,
        clock_ms: Callable[[], int] = now_ms,
        most: int = Limits().subscription_groups,
    ) -> None:
        """Read the file of groups. Raises StoreAccessError, FormatError.

        `is_writable` states whether changes are written. `most` is the maximum number of groups.
        """
        self._file = ConfigFile(store, SUBSCRIPTION_GROUP_FILE, is_writable)
        self._is_writable, self._clock_ms, self._most = is_writable, clock_ms, most
        self._guard, self._saving = Lock(), Lock()
        # A broker of 5.x may keep its groups in RocksDB. Then this server only reads the store.
        settings = settings_in_rocksdb(str(store), "groups")
        self._version, self._configs, self._other_fields = (
            self._file.load_either(self._parse)
            if settings is None or is_writable
            else self._parse(self._file.path, {_TABLE: settings})
        )

    def _parse(
        self, path: Path, content: dict[str, Any]
    ) -> tuple[dict[str, int], dict[str, GroupConfig], dict[str, Any]]:
        """Return version, groups and other fields of the file. Raises FormatError."""
        try:
            table = content.get(_TABLE) or {}
            version = {"counter": 0, "timestamp": self._clock_ms()} | {
                name: int(value) for name, value in (content.get("dataVersion") or {}).items()
            }
            configs = {name: GroupConfig.of_json(name, fields) for name, fields in table.items()}
        except (ValueError, TypeError, AttributeError):
            raise FormatError(path, 0, "not a table of groups") from None
        return (
            version,
            configs,
            {k: v for k, v in content.items() if k not in (_TABLE, "dataVersion")},
        )

    def get(self, group: str) -> GroupConfig:
        """Return the settings of a group, or a broker's defaults."""
        return self._configs.get(group) or GroupConfig(group)

    def has_config(self, group: str) -> bool:
        """Return whether a group has settings of its own. Other groups have a broker's defaults."""
        return group in self._configs

    def configs(self) -> list[GroupConfig]:
        """Return the settings of all groups that have settings of their own."""
        # `copy` is atomic, so other threads may change the groups meanwhile.
        return list(self._configs.copy().values())

    def data_version(self) -> dict[str, int]:
        """Return the version number. It changes with each change of groups, so that tools notice changes."""
        return dict(self._version)

    def note(self, group: str) -> None:
        """Add a consuming group to subscriptionGroup.json, as a broker does.

        If the file has the maximum number of groups, the group is not added. It can consume nevertheless.
        """
        if self._is_writable and group not in self._configs and len(self._configs) < self._most:
            self.update(GroupConfig(group))

    def update(self, config: GroupConfig) -> None:
        """Create a group, or change its settings. The next `save` writes it. Raises LimitError, NameRefusedError."""
        check_name(config.name, "group")
        with self._guard:
            if config.name not in self._configs and len(self._configs) >= self._most:
                most = self._most
                raise LimitError(
                    f"group {config.name} is not created: the maximum of {most} groups is reached"
                )
            self._configs[config.name] = config
            self._change()

    def delete(self, group: str) -> None:
        """Delete a group's settings, if it has any. The next `save` updates the file."""
        with self._guard:
            if self._configs.pop(group, None) is not None:
                self._change()

    def _change(self) -> None:
        counter = self._version["counter"] + 1
        self._version = {**self._version, "counter": counter, "timestamp": self._clock_ms()}
        self._file.is_changed = self._is_writable

    def unsaved(self) -> Iterator[Callable[[], None]]:
        """If any group has changed, yield a function that saves the groups. Any thread may call the function."""
        if self._file.is_changed:
            yield self.save

    def save(self) -> None:
        """Save the changes. Any thread may call this; one save serves all waiting threads. Raises StoreAccessError."""
        with self._saving:
            if self._file.is_changed:
                self._file.saving(self._encode)()

    def _encode(self) -> bytes:
        with self._guard:
            configs, version = dict(self._configs), self._version
        table = {name: config.as_json() for name, config in sorted(configs.items())}
        return java_json_file({"dataVersion": version, **self._other_fields, _TABLE: table})
