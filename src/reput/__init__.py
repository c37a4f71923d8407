"""Read, rebuild, check and query the message store of Apache RocketMQ, byte for byte.

with reput.open_store("/data/rocketmq/store") as store:
    for message in store.query("orders", "o-17").messages:
        print(message.store_timestamp, message.body)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reput.config import StoreConfig
    from reput.errors import ReputError
    from reput.format.commit_log import MessageExt
    from reput.query.living_store import LivingStore
    from reput.query.message_store import MessageStore
    from reput.query.open_store import open_store
    from reput.query.pull import PullResult, PullStatus
    from reput.query.result import QueryResult
    from reput.store.expiry import ExpiryReport
    from reput.store.put.message import Message, PutResult

__version__ = "0.1.0"

__all__ = [
    "ExpiryReport",
    "LivingStore",
    "Message",
    "MessageExt",
    "MessageStore",
    "PullResult",
    "PullStatus",
    "PutResult",
    "QueryResult",
    "ReputError",
    "StoreConfig",
    "open_store",
]

# Imported when asked for: whoever needs one name does not wait for what the others import.
_HOMES = {
    "ExpiryReport": "reput.store.expiry",
    "LivingStore": "reput.query.living_store",
    "Message": "reput.store.put.message",
    "MessageExt": "reput.format.commit_log",
    "PullResult": "reput.query.pull",
    "PullStatus": "reput.query.pull",
    "PutResult": "reput.store.put.message",
    "MessageStore": "reput.query.message_store",
    "QueryResult": "reput.query.result",
    "ReputError": "reput.errors",
    "StoreConfig": "reput.config",
    "open_store": "reput.query.open_store",
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("reput.errors")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, "errors"})
