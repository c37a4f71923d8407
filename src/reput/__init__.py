"""Read, rebuild, check and query the message store of Apache RocketMQ, byte for byte.

with reput.open_store("/data/rocketmq/store") as store:
    for message in store.query("orders", "o-17"):
        print(message.store_timestamp, message.body)

report = reput.check("/data/rocketmq/store")
print(report)

The names in `__all__` are public, and `reput.reports` (their results), `reput.errors`, `reput.spark` and
`reput.testing`. A public name stays for at least one release after a warning says that it will go.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reput.config import StoreConfig
    from reput.errors import ReputError
    from reput.findings import Finding
    from reput.format.commit_log import MessageExt
    from reput.operations.check import check
    from reput.operations.diff import diff
    from reput.operations.export import export
    from reput.operations.find import find
    from reput.operations.inspect import inspect
    from reput.operations.lag import lag
    from reput.operations.look_up import look_up
    from reput.operations.prove import prove
    from reput.operations.rebuild import rebuild
    from reput.operations.repair import repair
    from reput.operations.report import report
    from reput.operations.stats import stats
    from reput.operations.stores import NamedStore
    from reput.operations.tail import tail
    from reput.operations.trace import trace
    from reput.query.message_store import MessageStore
    from reput.query.open_store import open_store
    from reput.query.writable_store import WritableStore
    from reput.table.arrow import to_arrow
    from reput.writer.put.message import Message
    from reput.writer.writer_settings import WriterSettings

__version__ = "0.3.0"

__all__ = [
    "Finding",
    "Message",
    "MessageExt",
    "MessageStore",
    "NamedStore",
    "ReputError",
    "StoreConfig",
    "WritableStore",
    "WriterSettings",
    "check",
    "diff",
    "export",
    "find",
    "inspect",
    "lag",
    "look_up",
    "open_store",
    "prove",
    "rebuild",
    "repair",
    "report",
    "stats",
    "tail",
    "to_arrow",
    "trace",
]

# Imported when asked for, so that no name waits for the libraries of the others.
_HOMES = {
    "Finding": "reput.findings",
    "Message": "reput.writer.put.message",
    "MessageExt": "reput.format.commit_log",
    "MessageStore": "reput.query.message_store",
    "NamedStore": "reput.operations.stores",
    "ReputError": "reput.errors",
    "StoreConfig": "reput.config",
    "WritableStore": "reput.query.writable_store",
    "WriterSettings": "reput.writer.writer_settings",
    "check": "reput.operations.check",
    "diff": "reput.operations.diff",
    "export": "reput.operations.export",
    "find": "reput.operations.find",
    "inspect": "reput.operations.inspect",
    "lag": "reput.operations.lag",
    "look_up": "reput.operations.look_up",
    "open_store": "reput.query.open_store",
    "prove": "reput.operations.prove",
    "rebuild": "reput.operations.rebuild",
    "repair": "reput.operations.repair",
    "report": "reput.operations.report",
    "stats": "reput.operations.stats",
    "tail": "reput.operations.tail",
    "to_arrow": "reput.table.arrow",
    "trace": "reput.operations.trace",
}


def __getattr__(name: str) -> Any:
    if name in ("errors", "reports"):
        return import_module(f"reput.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in (reports := import_module("reput.reports")).__all__:
        import warnings

        warnings.warn(
            f"reput.{name} has moved to reput.reports.{name}", DeprecationWarning, stacklevel=2
        )
        return getattr(reports, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, "errors", "reports"})
