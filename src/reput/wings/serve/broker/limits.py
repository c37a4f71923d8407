"""Define the budgets of clients of RocketMQ's protocol and of HTTP. Check names of topics and groups.

docs/budgets.md lists the budgets, and a test compares its list with this module.

A client is a connection. If all clients together exceed a budget, `reput.wings.serve.remoting.server` decides which
connection is closed. It does not simply close the connection of the last request, which may use only a small part of
the budget.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from reput.errors import ReputError

CLUSTER = "reput"
"""Default cluster name. All stores that a server serves belong to one cluster."""
MOST_FRAME_BYTES = 16 << 20
"""The longest frame that a broker accepts (`com.rocketmq.remoting.frameMaxLength`), including its length field."""
_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
_MOST_CHARACTERS = {"topic": 127, "group": 255}


class LimitError(ReputError):
    """A request exceeds the budget of its client, or of all clients together."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits for clients of RocketMQ's protocol. Each server process applies them separately.

    Attributes:
        frame_bytes: Size of one request.
        header_bytes, header_fields: Size and number of fields of a request's header.
        body_bytes: Size of the body of a request that sends no message.
        connections: Connections at a time, including TLS handshakes.
        in_flight: Unanswered requests of one connection.
        at_work: Requests of one connection that threads process or that wait for a thread.
        asked: Requests that this server sent to a client and the client has not answered.
        asked_members: Members of a group that the server asks on behalf of one request.
        answer_bytes: Size of the messages in one answer. An answer has at least one message. This size is reserved
            while a thread builds the answer.
        client_bytes: Memory of one connection: unfinished, waiting and unanswered requests, and unread answers.
        total_bytes: Memory of all connections, counted like `client_bytes`.
        idle_s: Seconds after which a connection is closed if it is silent, does not finish a request, or does not read
            an answer.
        handshake_s: Seconds for a TLS handshake.
        groups, subscriptions: Groups and subscriptions of one connection, over all its heartbeats.
        registered_bytes: Size of one connection's registrations.
        members: Members of all groups of a store together.
        total_registered_bytes: Size of all registrations with a store.
        topics: Topics of a store. Beyond this number, clients cannot create topics.
        topic_queues: Queues of one topic.
        subscription_groups: Groups whose settings are kept.
        counters: Topics and groups with counters. Beyond this number, a new one replaces the oldest.
        locked_queues: Queues in one request for locks.
        total_locked_queues: Locked queues of a store.
        waiting: Pulls of a store that wait for messages. Further pulls are answered at once.
        expression_chars: Characters of a subscription expression (`a || b`).
        offsets_bytes: Size of the file of committed offsets.
        batch_messages: Messages in one batch.
        values_bytes: Size of the key-value configuration that tools keep at the name server.
    """

    frame_bytes: int = MOST_FRAME_BYTES
    header_bytes: int = 256 << 10
    header_fields: int = 128
    body_bytes: int = 256 << 10
    connections: int = 10_000
    in_flight: int = 1024
    at_work: int = 4
    asked: int = 64
    asked_members: int = 500
    answer_bytes: int = 8 << 20
    client_bytes: int = 32 << 20
    total_bytes: int = 256 << 20
    idle_s: float = 120.0
    handshake_s: float = 10.0
    groups: int = 256
    subscriptions: int = 1024
    registered_bytes: int = 1 << 20
    members: int = 100_000
    total_registered_bytes: int = 64 << 20
    topics: int = 50_000
    topic_queues: int = 1024
    subscription_groups: int = 50_000
    counters: int = 10_000
    locked_queues: int = 2_048
    total_locked_queues: int = 100_000
    waiting: int = 100_000
    expression_chars: int = 16 << 10
    offsets_bytes: int = 32 << 20
    batch_messages: int = 10_000
    values_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """The limits for HTTP clients. Each server process applies them separately.

    Attributes:
        answer_bytes: Size of messages (decompressed, as JSON) or list entries in one answer. The client gets the rest
            with a cursor.
        connections: Connections at a time.
        request_s: Seconds in which a request must arrive.
        idle_s: Seconds after which a connection is closed if it is silent or does not read its answer.
        unsent_bytes: Size of unread answers of all clients.
        searches: Searches of all connections at a time, including waiting ones.
        search_threads: Searches that run at the same time. Others wait.
        search_s: Seconds after which a search ends with a cursor.
        ready_s: The server is reported as ready only if its stores answer within this number of seconds.
    """

    answer_bytes: int = 4 << 20
    connections: int = 256
    request_s: float = 10.0
    idle_s: float = 30.0
    unsent_bytes: int = 64 << 20
    searches: int = 32
    search_threads: int = 4
    search_s: float = 60.0
    ready_s: float = 5.0


HTTP = HttpLimits()


class NameRefusedError(ReputError):
    """A broker refuses this name."""


def check_name(name: str, kind: str) -> None:
    """Check the name of a `topic` or a `group`. Raises NameRefusedError."""
    if not name.strip():
        raise NameRefusedError(f"The specified {kind} is blank.")
    if len(name) > _MOST_CHARACTERS[kind]:
        raise NameRefusedError(f"The specified {kind} is longer than {kind} max length.")
    if not _NAME.fullmatch(name):
        raise NameRefusedError(
            f"The specified {kind} contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
        )
