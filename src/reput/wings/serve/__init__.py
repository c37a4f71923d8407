"""Serve stores to RocketMQ's clients: `remoting` has the protocol, `broker` what a broker keeps beside messages."""

from typing import TYPE_CHECKING

from reput.base import face

if TYPE_CHECKING:
    from reput.wings.serve.broker.broker import ServedBroker as ServedBroker
    from reput.wings.serve.broker.lag import GroupLag as GroupLag
    from reput.wings.serve.broker.lag import QueueLag as QueueLag
    from reput.wings.serve.broker.lag import consumer_lag as consumer_lag
    from reput.wings.serve.broker.lag import group_lags as group_lags
    from reput.wings.serve.broker.lag import lag_of_group as lag_of_group
    from reput.wings.serve.broker.limits import CLUSTER as CLUSTER
    from reput.wings.serve.broker.limits import HTTP as HTTP
    from reput.wings.serve.broker.limits import HttpLimits as HttpLimits
    from reput.wings.serve.broker.limits import LimitError as LimitError
    from reput.wings.serve.broker.limits import Limits as Limits
    from reput.wings.serve.broker.offsets import end_offsets_with_queues as end_offsets_with_queues
    from reput.wings.serve.broker.open_transactions import open_transactions as open_transactions
    from reput.wings.serve.broker.popped import PoppedMessages as PoppedMessages
    from reput.wings.serve.broker.sql_filter import compile_filter as compile_filter
    from reput.wings.serve.remoting.access import AccessList as AccessList
    from reput.wings.serve.remoting.port import PortOptions as PortOptions
    from reput.wings.serve.remoting.service import Service as Service
    from reput.wings.serve.remoting.service import ServiceOptions as ServiceOptions
    from reput.wings.serve.remoting.stores import is_store as is_store
    from reput.wings.serve.remoting.stores import missing_stores as missing_stores
    from reput.wings.serve.remoting.traffic import Traffic as Traffic
else:
    __getattr__, __dir__ = face(__name__)
