"""Open a store or many, choose who runs an operation, and ask all stores the same question."""

from typing import TYPE_CHECKING

from reput.base import face

if TYPE_CHECKING:
    from reput.engine.stores.find_operation import BY_QUEUES as BY_QUEUES
    from reput.engine.stores.find_operation import FindReport as FindReport
    from reput.engine.stores.find_operation import FindRequest as FindRequest
    from reput.engine.stores.find_operation import FoundMessage as FoundMessage
    from reput.engine.stores.find_operation import find as find
    from reput.engine.stores.find_operation import find_by as find_by
    from reput.engine.stores.monitoring import GROUP_METRICS as GROUP_METRICS
    from reput.engine.stores.monitoring import STORE_METRICS as STORE_METRICS
    from reput.engine.stores.monitoring import nagios_lines as nagios_lines
    from reput.engine.stores.monitoring import nagios_status as nagios_status
    from reput.engine.stores.monitoring import part_figures as part_figures
    from reput.engine.stores.monitoring import prometheus_lines as prometheus_lines
    from reput.engine.stores.monitoring import store_figures as store_figures
    from reput.engine.stores.named_stores import NamedStore as NamedStore
    from reput.engine.stores.opening import find_stores as find_stores
    from reput.engine.stores.opening import log_bytes as log_bytes
    from reput.engine.stores.opening import open_store as open_store
    from reput.engine.stores.opening import split_logs as split_logs
    from reput.engine.stores.opening import wait_for_log as wait_for_log
    from reput.engine.stores.opening import with_archive as with_archive
    from reput.engine.stores.opening import with_logs as with_logs
    from reput.engine.stores.pasted import Pasted as Pasted
    from reput.engine.stores.pasted import understood as understood
    from reput.engine.stores.replicas import answered_by as answered_by
    from reput.engine.stores.replicas import find_replicas as find_replicas
    from reput.engine.stores.replicas import replicas_of as replicas_of
    from reput.engine.stores.runners import Chosen as Chosen
    from reput.engine.stores.runners import RunnerName as RunnerName
    from reput.engine.stores.runners import local_runner as local_runner
    from reput.engine.stores.runners import opened_runner as opened_runner
    from reput.engine.stores.runners import require_spark as require_spark
    from reput.engine.stores.runners import spark_session as spark_session
    from reput.engine.stores.stores import StoreAnswer as StoreAnswer
    from reput.engine.stores.stores import Stores as Stores
    from reput.engine.stores.stores import StoresReport as StoresReport
    from reput.engine.stores.stores import StoreState as StoreState
    from reput.engine.stores.stores import bytes_of as bytes_of
    from reput.engine.stores.stores import in_threads as in_threads
    from reput.engine.stores.stores import open_named as open_named
    from reput.engine.stores.stores import over_stores as over_stores
    from reput.engine.stores.stores import stores_of as stores_of
    from reput.engine.stores.stores import takes_stores as takes_stores
    from reput.engine.stores.tail_operation import TailReport as TailReport
    from reput.engine.stores.tail_operation import tail as tail
else:
    __getattr__, __dir__ = face(__name__)
