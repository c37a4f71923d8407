"""Read, rebuild, check and query the message store of Apache RocketMQ, byte for byte.

with reput.open_store("/data/rocketmq/store") as store:
    for message in store.query("orders", "o-17"):
        print(message.store_timestamp, message.body)

report = reput.check("/data/rocketmq/store")
print(report)

The public API consists of the names in `__all__` and the modules `reput.reports` (types of results), `reput.errors`,
`reput.spark` and `reput.testing`. A public name is removed only after it has caused a DeprecationWarning for at least
one release.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reput.config import StoreConfig as StoreConfig
    from reput.errors import ReputError as ReputError
    from reput.format.commit_log import MessageExt as MessageExt
    from reput.operations.archive import archive as archive
    from reput.operations.archive import restore as restore
    from reput.operations.archive import verify_archive as verify_archive
    from reput.operations.archive import with_archive as with_archive
    from reput.operations.check import check as check
    from reput.operations.diff import diff as diff
    from reput.operations.erase import erase as erase
    from reput.operations.export import export as export
    from reput.operations.find import find as find
    from reput.operations.inspect import inspect as inspect
    from reput.operations.lag import lag as lag
    from reput.operations.look_up import look_up as look_up
    from reput.operations.one_file import ConsumeQueue as ConsumeQueue
    from reput.operations.one_file import IndexFile as IndexFile
    from reput.operations.prove import prove as prove
    from reput.operations.rebuild import rebuild as rebuild
    from reput.operations.repair import repair as repair
    from reput.operations.repair import undo_repair as undo_repair
    from reput.operations.report import report as report
    from reput.operations.stats import stats as stats
    from reput.operations.tail import tail as tail
    from reput.operations.trace import trace as trace
    from reput.query.message_store import MessageStore as MessageStore
    from reput.query.open_store import open_store as open_store
    from reput.query.writable_store import WritableStore as WritableStore
    from reput.store.named_stores import NamedStore as NamedStore
    from reput.table.arrow import dataset as dataset
    from reput.writer.put.message import Message as Message
    from reput.writer.writer_settings import WriterSettings as WriterSettings

__version__ = "0.3.0"

# A module is imported when one of its names is first used, because importing all modules takes seconds.
_NAMES = {
    "reput.config": "StoreConfig",
    "reput.errors": "ReputError",
    "reput.format.commit_log": "MessageExt",
    "reput.operations.archive": "archive restore verify_archive with_archive",
    "reput.operations.check": "check",
    "reput.operations.diff": "diff",
    "reput.operations.erase": "erase",
    "reput.operations.export": "export",
    "reput.operations.find": "find",
    "reput.operations.inspect": "inspect",
    "reput.operations.lag": "lag",
    "reput.operations.look_up": "look_up",
    "reput.operations.one_file": "ConsumeQueue IndexFile",
    "reput.operations.prove": "prove",
    "reput.operations.rebuild": "rebuild",
    "reput.operations.repair": "repair undo_repair",
    "reput.operations.report": "report",
    "reput.operations.stats": "stats",
    "reput.store.named_stores": "NamedStore",
    "reput.operations.tail": "tail",
    "reput.operations.trace": "trace",
    "reput.query.message_store": "MessageStore",
    "reput.query.open_store": "open_store",
    "reput.query.writable_store": "WritableStore",
    "reput.table.arrow": "dataset",
    "reput.writer.put.message": "Message",
    "reput.writer.writer_settings": "WriterSettings",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in ("errors", "reports"):
        return import_module(f"reput.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name == "to_arrow":
        _warn("reput.to_arrow(...) is deprecated: use reput.dataset(...).to_reader()")
        return import_module("reput.table.arrow").to_arrow
    if name in (reports := import_module("reput.reports")).__all__:
        _warn(f"reput.{name} has moved: use reput.reports.{name}")
        return getattr(reports, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _warn(text: str) -> None:
    import warnings

    warnings.warn(text, DeprecationWarning, stacklevel=3)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, "errors", "reports"})
