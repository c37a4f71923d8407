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

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from reput.base import face, offers

if TYPE_CHECKING:
    from reput.base import StoreConfig as StoreConfig
    from reput.core import MessageStore as MessageStore
    from reput.engine.check import check as check
    from reput.engine.check import prove as prove
    from reput.engine.check import repair as repair
    from reput.engine.check import undo_repair as undo_repair
    from reput.engine.lookup import look_up as look_up
    from reput.engine.rebuild import rebuild as rebuild
    from reput.engine.stores import NamedStore as NamedStore
    from reput.engine.stores import find as find
    from reput.engine.stores import open_store as open_store
    from reput.engine.stores import tail as tail
    from reput.engine.tables import dataset as dataset
    from reput.engine.writer import Message as Message
    from reput.engine.writer import WritableStore as WritableStore
    from reput.engine.writer import WriterSettings as WriterSettings
    from reput.errors import ReputError as ReputError
    from reput.format.commit_log import MessageExt as MessageExt
    from reput.wings.archive import archive as archive
    from reput.wings.archive import restore as restore
    from reput.wings.archive import verify_archive as verify_archive
    from reput.wings.archive import with_archive as with_archive
    from reput.wings.erase import erase as erase
    from reput.wings.erase import verify_erasure as verify_erasure
    from reput.wings.fleet.api import lag as lag
    from reput.wings.inspect.api import ConsumeQueue as ConsumeQueue
    from reput.wings.inspect.api import IndexFile as IndexFile
    from reput.wings.inspect.api import diff as diff
    from reput.wings.inspect.api import inspect as inspect
    from reput.wings.inspect.api import report as report
    from reput.wings.inspect.api import stats as stats
    from reput.wings.inspect.api import trace as trace
    from reput.wings.lakes import export as export

__version__ = "0.4.0"

__all__ = sorted(offers(__name__))
_offered, _ = face(__name__)


def __getattr__(name: str) -> Any:
    if name in ("errors", "reports"):
        return import_module(f"reput.{name}")
    if name in __all__:
        return _offered(name)
    if name == "to_arrow":
        _warn("reput.to_arrow(...) is deprecated: use reput.dataset(...).to_reader()")
        return import_module("reput.engine.tables.arrow").to_arrow
    if name in ("Finding", "coverage_of", "unwrap"):
        _warn(f"reput.{name} has moved: use reput.reports.{name}")
        return getattr(import_module("reput.reports"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _warn(text: str) -> None:
    warnings.warn(text, DeprecationWarning, stacklevel=3)


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__", "errors", "reports"})
