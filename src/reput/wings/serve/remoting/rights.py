"""Check the rights of a request's sender, also for the topic of each message that is read or sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from reput.errors import FormatError, RemotingError
from reput.format.commit_log import MessageExt, RecordError, decode
from reput.format.properties import (
    DEAD_LETTER_TOPIC_PREFIX,
    DISCARDED_HALF_TOPIC,
    HALF_TOPICS,
    INNER_MULTI_DISPATCH,
    REAL_TOPIC,
    RETRY_TOPIC,
    RETRY_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    SYSTEM_TOPIC_PREFIX,
)
from reput.format.real_queue import popped_topics

PUB, SUB = 4, 8
_FURTHER = INNER_MULTI_DISPATCH.encode()
_BOX_TOPICS = (SCHEDULE_TOPIC, *HALF_TOPICS, DISCARDED_HALF_TOPIC)
_BOX_PREFIXES = (RETRY_TOPIC_PREFIX, DEAD_LETTER_TOPIC_PREFIX, SYSTEM_TOPIC_PREFIX)


class AccessError(RemotingError):
    """The sender is not allowed to make the request."""


@dataclass(frozen=True, slots=True)
class Account:
    """One account, with its permissions by topic and by group; 0 means no permission."""

    access_key: str
    secret: bytes
    addresses: str = ""
    is_admin: bool = False
    default_topic: int = 0
    default_group: int = 0
    topics: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[str, int] = field(default_factory=dict)

    def may(self, resource: str, permission: int) -> bool:
        """Return whether the account has the permission (SUB to read, PUB to send) for a topic or a group.

        `resource` is the topic; for a group, it is the group's retry topic.
        """
        if resource.startswith(RETRY_TOPIC_PREFIX):
            group = resource.removeprefix(RETRY_TOPIC_PREFIX)
            owned = self.groups.get(group, self.default_group)
        else:
            owned = self.topics.get(resource, self.default_topic)
        # As in `PlainPermissionManager.checkPerm`, an administrator may use all topics and groups only if the account
        # lists no permissions.
        is_free = self.is_admin and not (self.topics or self.groups)
        return is_free or bool(owned & permission)


class Rights:
    """The rights of the client that sent a request. The methods call this client the sender."""

    def __init__(self, account: Account | None = None) -> None:
        """Create the rights of the client that sent a request.

        `account` is None if the server has no accounts, or if the client's address needs no account. Then
        everything is allowed.
        """
        self._account = account

    @property
    def is_free(self) -> bool:
        """Whether everything is allowed."""
        return self._account is None

    @property
    def owner(self) -> str:
        """Return the access key of the sender, or an empty string if the sender needs no account."""
        return "" if self._account is None else self._account.access_key

    @property
    def is_admin(self) -> bool:
        return self._account is None or self._account.is_admin

    def may(self, resource: str, permission: int) -> bool:
        """Return whether the sender of a request may read from a topic (SUB) or send to it (PUB).

        `resource` is the topic. For a group, it is the group's retry topic.
        """
        return self._account is None or self._account.may(resource, permission)

    def may_group(self, group: str) -> bool:
        """Return whether the sender of a request may consume as a group."""
        return self.may(f"{RETRY_TOPIC_PREFIX}{group}", SUB)

    def may_read(self, message: MessageExt) -> bool:
        """Return whether the requesting client may read a message.

        The client needs rights for the message's topic, for the topic to which the message will be delivered and, for a
        retry, for the topic of the original message.
        """
        topics = [message.topic]
        if is_mixed(message.topic):
            topics += [message.properties.get(name, "") for name in (REAL_TOPIC, RETRY_TOPIC)]
        # The retry topic of a popping group is named %RETRY%GROUP_TOPIC. For example, a group `a` that pops from a
        # topic `b` has the same retry topic as a group `a_b`. An account with rights for group `a_b` need not have
        # rights for topic `b`, so check the original topic as well.
        for topic in tuple(topics):
            topics += popped_topics(topic, message.properties)
        return all(self.may(topic, SUB) for topic in topics if topic)

    def readable(self, records: Iterable[bytes]) -> list[bytes]:
        """Return only the records that the requesting client may read."""
        return (
            list(records)
            if self.is_free
            else [record for record in records if self._may_read(record)]
        )

    def _may_read(self, record: bytes) -> bool:
        try:
            return self.may_read(decode(record, 0))
        except (RecordError, FormatError):
            # The record is damaged, so its topic is unknown, and the sender's rights cannot be checked.
            return False


FREE = Rights()


def may_be_foreign(topic: str, records: Iterable[bytes]) -> bool:
    """Return whether records pulled from this topic may belong to other topics, so that each must be checked."""
    return is_mixed(topic) or any(_FURTHER in record for record in records)


def is_mixed(topic: str) -> bool:
    """Return whether this topic contains messages of other topics, such as delayed messages or dead letters."""
    return topic in _BOX_TOPICS or topic.startswith(_BOX_PREFIXES)
