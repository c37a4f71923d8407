"""Register the handlers of requests. Answer a request with its handler, at once or later. Convert errors to answers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from reput.errors import ReputError
from reput.format.host import Host
from reput.wings.serve.remoting.commands import Command, Refusal, ResponseCode
from reput.wings.serve.remoting.requests import RequestCode
from reput.wings.serve.remoting.rights import AccessError

_log = logging.getLogger("reput.serve")


class Peer(Protocol):
    """The client at the other end of a connection.

    Attributes:
        address: Address of the client.
        server_host: The address of this server that the client used. Routes for the client contain it.
    """

    address: Host
    server_host: str

    def __hash__(self) -> int:
        """Return a hash of the object's identity: clients are equal only if they are the same object."""

    def push(self, command: Command) -> None:
        """Send the client a request that needs no answer, unless the client has stopped reading."""

    def ask(self, command: Command, then: Callable[[Command | None], object]) -> None:
        """Send the client a request that needs an answer.

        `then` is called once, in the thread that serves the connections: with the answer, or with None if the client
        has left, does not answer in time, or has too many unanswered requests of this server.
        """

    def run(
        self, work: Callable[[], Command], request: Command, then: Callable[[Command], object]
    ) -> None:
        """Run work for a request in a thread, as soon as it is this client's turn.

        `then` is called with the answer, in the thread that serves the connections, unless the client has left.
        """


class Later:
    """An answer that will come later."""

    def __init__(self) -> None:
        self._answer: Command | InThread | None = None
        self._taker: Callable[[Command | InThread], None] | None = None

    def resolve(self, answer: Command | InThread) -> None:
        """Set the answer, or the work whose result is the answer. A second call is ignored.

        Call this in the thread that serves the connections.
        """
        if self._answer is None:
            self._answer = answer
            if self._taker is not None:
                self._taker(answer)

    def then(self, taker: Callable[[Command | InThread], None]) -> None:
        """Call `taker` with the answer as soon as it is set."""
        self._taker = taker
        if self._answer is not None:
            taker(self._answer)


class InThread:
    """An answer that takes long: `work` computes it in a thread, and other requests do not wait for it.

    `then` can replace the answer of `work`. It runs in the thread that serves the connections.
    """

    def __init__(
        self, work: Callable[[], Command], then: Callable[[Command], Command | Later] | None = None
    ) -> None:
        self.work, self.then = work, then


Answer = Command | Later | InThread | None
Handler = Callable[[Command, Peer], Answer]
"""Answers a request. Returns None if the protocol defines no answer to the request."""
_Method = TypeVar("_Method", bound=Callable[[Any, Command, Peer], Answer])
_answered: dict[Callable[[Any, Command, Peer], Answer], tuple[RequestCode, ...]] = {}


def answers(*codes: RequestCode) -> Callable[[_Method], _Method]:
    """Register a method as the handler of these requests."""

    def register(method: _Method) -> _Method:
        _answered[method] = codes
        return method

    return register


def codes_of(part: type) -> set[RequestCode]:
    """Return the codes of the requests that the methods of a class answer."""
    return {code for method in vars(part).values() for code in _codes(method)}


def handlers_of(part: object) -> dict[int, Handler]:
    """Return the methods of an object that answer requests, by request code."""
    return {
        code: getattr(part, name)
        for name, method in vars(type(part)).items()
        for code in _codes(method)
    }


def _codes(method: object) -> tuple[RequestCode, ...]:
    return _answered.get(method, ()) if callable(method) else ()


def answer_with(handlers: Mapping[int, Handler], request: Command, peer: Peer) -> Answer:
    """Return the answer of the handler for the request's code. Convert errors to answers."""
    handler = handlers.get(request.code)
    if handler is None:
        return request.answer(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported"
        )
    try:
        return handler(request, peer)
    except Exception as error:
        return failed(request, error)


def failed(request: Command, error: BaseException) -> Command:
    """Return the answer to a failed request, with the reason.

    Only a `Refusal` has the code QUERY_NOT_FOUND or PULL_NOT_FOUND, from which clients conclude that there is no offset
    or message.
    """
    if isinstance(error, Refusal):
        return request.answer(error.code, str(error))
    if isinstance(error, AccessError):
        return request.answer(ResponseCode.NO_PERMISSION, str(error))
    if isinstance(error, ReputError):
        return request.answer(ResponseCode.SYSTEM_ERROR, str(error))
    _log.error("request %d failed", request.code, exc_info=error)
    return request.answer(ResponseCode.SYSTEM_ERROR, f"unexpected {type(error).__name__}: {error}")
