"""Translate commands of RocketMQ's `mqadmin` into reput commands, for users who type them by habit."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple


class _Counterpart(NamedTuple):
    """The reput command for a command of mqadmin.

    `{t}` is replaced by the value of mqadmin's option -t, or by the placeholder TOPIC if the option is missing.
    """

    template: str
    options: str = ""
    """Optional parts of the reput command, separated by `|`.

    For example, `k:--key {k}` appends `--key {k}` to the command if mqadmin's option -k is present.
    """


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
    "queryMsgTraceById": _Counterpart("trace STORE --id {i}"),
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
# Commands that change or query a running broker, so they have no counterpart for the files of a store.
_OF_A_BROKER = (
    "topicRoute", "topicClusterList", "clusterList", "brokerStatus", "resetOffsetByTime", "updateTopic", "deleteTopic",
    "consumerStatus", "producerConnection", "consumerConnection", "getBrokerConfig", "updateSubGroup",
)  # fmt: skip


def advice(command: str, arguments: Sequence[str]) -> str:
    """Return advice for a command of mqadmin: the reput command to use instead. Empty for an unknown command."""
    if command in _OF_A_BROKER:
        return (
            f"{command}: this mqadmin command needs a running broker, but reput reads a broker's files. To use "
            f"mqadmin, serve the store: reput serve STORE"
        )
    if command not in _COMMANDS:
        return ""
    options = _options(arguments)
    counterpart = _COMMANDS[command]
    parts = [counterpart.template]
    for part in filter(None, counterpart.options.split("|")):
        letter, _, text = part.partition(":")
        if letter in options:
            parts.append(text)
    values = {
        name: shlex.quote(options[name]) if name in options else word
        for name, word in _NAMES.items()
    }
    return f"{command} is a command of mqadmin; use: reput {' '.join(parts).format(**values)}"


def _options(arguments: Sequence[str]) -> dict[str, str]:
    """Return the values of mqadmin's options, keyed by the letters of the short forms."""
    values: dict[str, str] = {}
    rest = iter(arguments)
    for argument in rest:
        name, has_value, value = argument.lstrip("-").partition("=")
        if argument.startswith("--"):
            name = _LONG.get(name, "")
        if argument.startswith("-") and name:
            values[name] = value if has_value else next(rest, "")
    return values
