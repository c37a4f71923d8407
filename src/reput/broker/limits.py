"""Budgets of the server's clients over both protocols, and the names that they may bring along.

SECURITY.md lists the budgets; a test compares the two.

A client is a connection. Where a budget is for all clients together, the client that exceeds it need not be the one
that used it up: see `reput.remoting.memory` for who is closed then.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from reput.errors import ReputError

CLUSTER = "reput"
"""Name of the cluster that all stores of one server are in, unless the user names it."""
MOST_FRAME_BYTES = 16 << 20
"""The longest frame that a broker takes (`com.rocketmq.remoting.frameMaxLength`), its length field included."""
_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
_MOST_CHARACTERS = {"topic": 127, "group": 255}


class LimitError(ReputError):
    """A request that needs more than a budget allows: the client's, or that of all together."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of clients of RocketMQ's protocol per process.

    Attributes:
        frame_bytes: of one request; `header_bytes` and `header_fields` of its header, `body_bytes` of the body
            of a request that sends no message
        connections: at a time, TLS handshakes included
        in_flight: requests of one connection that are being answered; `at_work` of them are in threads or wait for one
        asked: requests of this server that a client has not answered; `asked_members` of a group are asked for one
            request
        answer_bytes: of the messages in one answer, but one at least; so much is held while a thread builds an answer
        client_bytes: of one connection: unfinished, waiting and unanswered requests, and answers that it did not read
        total_bytes: the same of all connections
        idle_s: seconds until a connection is closed that is silent, or does not finish a request or read an answer
        handshake_s: for a TLS handshake
        groups, subscriptions: of one connection, over all its heartbeats; `registered_bytes` of its registrations
        members: connections times groups, of a store
        total_registered_bytes: registrations of all connections with a store
        topics: of a store, after which clients cannot create further ones; `topic_queues` of one topic
        subscription_groups: whose settings are kept
        counters: of topics and of groups, after which the oldest gives way to a new one
        locked_queues: in one request; `total_locked_queues` of a store
        waiting: pulls that wait for messages, of a store; a further one is answered at once
        expression_chars: of a subscription expression (`a || b`)
        offsets_bytes: the file of committed offsets
        batch_messages: in one batch
        values_bytes: of the key-value configuration that tools keep at the name server
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
    """The limits of HTTP clients per process.

    Attributes:
        answer_bytes: of the messages in one answer, decompressed and as JSON, or the entries of a list; a cursor leads
            to the others
        connections: at a time
        request_s: until a request has arrived
        idle_s: after which a connection is closed that is silent or does not read its answer
        unsent_bytes: of answers that clients have not read, together
        searches: at a time, of all connections; `search_threads` of them work at one moment
        search_s: after which a search ends with a cursor
        ready_s: within which the stores must answer, else the server is not ready
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
    """A name that a broker does not take."""


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
