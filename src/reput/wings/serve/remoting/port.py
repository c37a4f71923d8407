"""Answer all requests at one address, as the name server of all brokers and as one broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reput.format.commit_log import MessageExt
from reput.wings.serve.broker.broker import Cluster, ServedBroker
from reput.wings.serve.broker.limits import Limits
from reput.wings.serve.remoting import handling
from reput.wings.serve.remoting.access import AccessList
from reput.wings.serve.remoting.administering import Administering, ClientQueries
from reput.wings.serve.remoting.commands import Command, ResponseCode
from reput.wings.serve.remoting.consuming import Consuming
from reput.wings.serve.remoting.handling import Answer
from reput.wings.serve.remoting.name_server import NameServer
from reput.wings.serve.remoting.pulling import Pulling
from reput.wings.serve.remoting.reading import Reading
from reput.wings.serve.remoting.requests import OF_NAME_SERVER, SENDS, WITH_JSON
from reput.wings.serve.remoting.sending import Sending, refusals
from reput.wings.serve.remoting.statistics import Statistics


@dataclass(frozen=True, slots=True)
class PortOptions:
    """Options of a port.

    Attributes:
        advertised: Host in routes; None for the host by which a client reached this server.
        most_exact: Maximum number of messages of an exact query by key; None to answer queries as a broker does.
        is_synced: Whether senders wait until their messages are durable.
        has_sql_filters: Whether clients may filter by SQL92.
    """

    advertised: str | None = None
    most_exact: int | None = None
    is_synced: bool = False
    has_sql_filters: bool = False


class Port:
    """One address of the server. The broker at this address appears and disappears with its store."""

    def __init__(
        self,
        cluster: Cluster,
        options: PortOptions | None = None,
        access: AccessList | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Answer as a name server of `cluster`. `open` adds a broker.

        With `access`, requests to the broker are checked against the permissions in this list.
        """
        self._options, self._access = options or PortOptions(), access
        self._limits = limits or Limits()
        self._name_server = NameServer(cluster, self._options.advertised)
        handlers = handling.handlers_of(self._name_server)
        self._names = {code: handlers[code] for code in handlers if code in OF_NAME_SERVER}
        self._handlers: dict[int, handling.Handler] = self._names
        self._broker: ServedBroker | None = None
        self._pulling: Pulling | None = None
        self._sending: Sending | None = None
        self._consuming: Consuming | None = None

    def open(self, broker: ServedBroker) -> None:
        """Begin to answer clients' requests as a broker does. Before, this address answers only as a name server."""
        self._broker = broker
        self._pulling, self._consuming = Pulling(broker), Consuming(broker)
        parts = [
            self._names,
            handling.handlers_of(Reading(broker, self._options.most_exact)),
            handling.handlers_of(self._pulling),
            handling.handlers_of(self._consuming),
            handling.handlers_of(Statistics(broker, self._options.is_synced)),
            handling.handlers_of(ClientQueries(broker)),
        ]
        if broker.written is None:
            parts.append(refusals(broker))
        else:
            self._sending = Sending(broker, broker.written, self._options.is_synced)
            parts.append(self._sending.handlers())
            administering = Administering(broker, self._pulling.reset)
            parts += [handling.handlers_of(administering), handling.handlers_of(self._name_server)]
        self._handlers = {code: handler for part in parts for code, handler in part.items()}

    def stop_waiting(self) -> None:
        """Answer the waiting pulls with the available messages."""
        if self._pulling is not None:
            self._pulling.answer_waiting()

    def close(self) -> None:
        """Stop answering for the broker, after answering waiting pulls."""
        self.stop_waiting()
        self._broker = self._pulling = self._sending = self._consuming = None
        self._handlers = self._names

    def answer(self, request: Command, peer: handling.Peer) -> Answer:
        """Return the answer to a request."""
        if self._broker is None and request.code not in self._handlers:
            return request.answer(
                ResponseCode.SERVICE_NOT_AVAILABLE, "the store of this address is not there yet"
            )
        if (refused := self._refused(request)) is not None:
            return refused
        # Requests to the name server need no permission. Unknown requests are refused by `answer_with`.
        is_named = request.code in self._names or request.code not in self._handlers
        if not is_named and (forbidden := self._forbidden(request, peer)) is not None:
            return forbidden
        return handling.answer_with(self._handlers, request, peer)

    def _forbidden(self, request: Command, peer: handling.Peer) -> Command | None:
        """Set the rights of a request's sender, or return the answer that refuses the request."""
        if self._access is not None:
            try:
                request.rights = self._access.check(request, peer.address.address)
            except Exception as error:  # Refuse a request if its permissions cannot be checked.
                return handling.failed(request, error)
        return None

    def answer_sends(self, sends: Sequence[tuple[Command, handling.Peer]]) -> list[Answer]:
        """Return the answers to sends that arrived together."""
        if self._sending is None:
            return [self.answer(request, peer) for request, peer in sends]
        answers: list[Answer] = [self._forbidden(request, peer) for request, peer in sends]
        allowed = [number for number, refused in enumerate(answers) if refused is None]
        together = [sends[number] for number in allowed]
        try:
            send_answers = self._sending.send_many(together)
        # Even after an unexpected error, every sender needs an answer.
        except Exception as error:
            send_answers = [handling.failed(request, error) for request, _ in together]
        for number, answer in zip(allowed, send_answers, strict=True):
            answers[number] = answer
        return answers

    def _refused(self, request: Command) -> Command | None:
        """Return the answer that refuses a request whose body is too long for its kind, or None."""
        # The body of a send is a message, which has a limit of its own.
        if request.code in SENDS or request.code not in self._handlers:
            return None
        most = self._limits.body_bytes if request.code in WITH_JSON else 0
        if len(request.body) <= most:
            return None
        remark = f"request type {request.code} has a body of at most {most} bytes, not {len(request.body)}"
        return request.answer(ResponseCode.SYSTEM_ERROR, remark)

    def is_awaited(self, topic: str, queue_id: int) -> bool:
        """Return whether a client waits for messages of a queue. Any thread may call this."""
        pulling = self._pulling
        return pulling is not None and pulling.is_awaited(topic, queue_id)

    def wake_up(self, topic: str, queue_id: int, end: int) -> None:
        """Record that a queue of the store now ends at `end`, so that waiting pulls are answered."""
        if self._pulling is not None:
            self._pulling.wake_up(topic, queue_id, end)

    def look(self) -> None:
        """Answer pulls that have waited long enough, and notify the members of changed groups.

        Call this several times per second.
        """
        if self._pulling is not None:
            self._pulling.look()
        if self._consuming is not None:
            self._consuming.notify()

    def growth(self) -> Callable[[], list[tuple[str, int, int]]] | None:
        """Return a function that finds the ends of awaited queues, or None if no queue is awaited.

        The function may run in any thread.
        """
        return None if self._pulling is None else self._pulling.growth()

    def ask_producers(self, due: Sequence[MessageExt]) -> None:
        """Ask producers about undecided messages."""
        if self._sending is not None:
            self._sending.ask_producers(due)

    def disconnected(self, peer: handling.Peer) -> None:
        """Remove a client that has left."""
        if self._pulling is not None:
            self._pulling.disconnected(peer)
        if self._broker is not None:
            self._broker.groups.disconnect(peer)
