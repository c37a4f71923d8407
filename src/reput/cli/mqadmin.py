"""Translate commands of RocketMQ's `mqadmin` into reput commands, for users who type them by habit."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple


class _Counterpart(NamedTuple):
    """A command of reput.

    `{t}` is replaced by the value of mqadmin's -t, or by its name in capitals if it is missing.
    """

    template: str
    options: str = ""
    """Further parts, used if mqadmin's option is present: `k:--key {k}`, separated by `|`."""


_NAMES = {
    "t": "TOPIC", "k": "KEY", "i": "ID", "o": "OFFSET", "q": "QUEUE", "g": "GROUP", "p": "BODY", "c": "TAG",
}  # fmt: skip
_LONG = {
    "topic": "t", "msgKey": "k", "msgId": "i", "queueId": "i", "offset": "o", "queue": "q", "index": "i",
    "groupName": "g", "consumerGroup": "g", "body": "p", "key": "k", "tags": "c",
}  # fmt: skip
_COMMANDS = {
    "queryMsgByKey": _Counterpart("query STORE --topic {t} --key {k}"),
    "queryMsgById": _Counterpart("show STORE {i}"),
    "queryMsgByUniqueKey": _Counterpart("show STORE {i}", "t:--topic {t}"),
    "queryMsgByOffset": _Counterpart("show STORE {t}/{i}/{o}"),
    "queryMsgTraceById": _Counterpart("trace STORE --message {i}"),
    "queryCq": _Counterpart("show STORE {t}/{q}/{i}"),
    "printMsg": _Counterpart("tail STORE --topic {t}"),
    "printMsgByQueue": _Counterpart("tail STORE --topic {t}", "i:--queue-id {i}"),
    "consumeMessage": _Counterpart("tail STORE --topic {t}", "i:--queue-id {i}"),
    "sendMessage": _Counterpart(
        "put STORE --topic {t} --body {p}", "k:--key {k}|c:--tag {c}|i:--queue-id {i}"
    ),
    "consumerProgress": _Counterpart("state lag STORE", "g:--group {g}"),
    "brokerConsumeStats": _Counterpart("state lag STORE"),
    "topicStatus": _Counterpart("inspect STORE"),
    "topicList": _Counterpart("inspect STORE"),
    "statsAll": _Counterpart("stats STORE"),
}
_OF_A_BROKER = (
    "topicRoute", "topicClusterList", "clusterList", "brokerStatus", "resetOffsetByTime", "updateTopic", "deleteTopic",
    "consumerStatus", "producerConnection", "consumerConnection", "getBrokerConfig", "updateSubGroup",
)  # fmt: skip


def advice(command: str, arguments: Sequence[str]) -> str:
    """Return the command to type instead of a command of mqadmin; empty if it is not one."""
    if command in _OF_A_BROKER:
        return (
            f"{command}: works on a running broker, but reput reads its files. To use mqadmin, "
            f"serve the store: reput serve STORE"
        )
    if command not in _COMMANDS:
        return ""
    given = _options(arguments)
    found = _COMMANDS[command]
    parts = [found.template]
    for part in filter(None, found.options.split("|")):
        letter, _, text = part.partition(":")
        if letter in given:
            parts.append(text)
    values = {
        name: shlex.quote(given[name]) if name in given else word for name, word in _NAMES.items()
    }
    return f"{command}: use: reput {' '.join(parts).format(**values)}"


def _options(arguments: Sequence[str]) -> dict[str, str]:
    """Return the values of mqadmin's options by their letters."""
    given: dict[str, str] = {}
    rest = iter(arguments)
    for argument in rest:
        name, has_value, value = argument.lstrip("-").partition("=")
        if argument.startswith("--"):
            name = _LONG.get(name, "")
        if argument.startswith("-") and name:
            given[name] = value if has_value else next(rest, "")
    return given
