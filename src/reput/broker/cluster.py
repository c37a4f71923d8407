"""The stores that are served together: brokers of one cluster, each at an address of its own."""

from __future__ import annotations

from collections.abc import Iterator

from reput.broker.broker import Broker
from reput.broker.sending import CLUSTER


class Cluster:
    """Brokers by port. They come and go with their stores."""

    def __init__(self, name: str = CLUSTER) -> None:
        self.name = name
        self._by_port: dict[int, Broker] = {}

    def add(self, port: int, broker: Broker) -> None:
        """A broker that answers at this port from now on."""
        self._by_port[port] = broker

    def remove(self, port: int) -> None:
        """Its store is gone."""
        self._by_port.pop(port, None)

    def at(self, port: int) -> Broker | None:
        """The broker of a port; None while its store is not there."""
        return self._by_port.get(port)

    def brokers(self) -> Iterator[tuple[int, Broker]]:
        """Port and broker, by port."""
        return iter(sorted(self._by_port.items()))
