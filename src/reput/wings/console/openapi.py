"""Define the paths of the API in one table, from which routes and the OpenAPI document are derived."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from reput import __version__
from reput.wings.console.json_api import LINES, Api

Handler = Callable[[Request], Awaitable[Response]]


class Parameter(NamedTuple):
    """A parameter. It belongs to the path if the path contains its name, otherwise to the query string."""

    name: str
    text: str
    type: str = "string"


class Endpoint(NamedTuple):
    """A path of the API: its handler, its parameters, and its answers."""

    path: str
    handler: Handler
    summary: str
    parameters: tuple[Parameter, ...] = ()
    has_lines: bool = False

    @property
    def route(self) -> str:
        """Return the path in the notation of Starlette."""
        return self.path.replace("{queue}", "{queue:int64}")


_STORE = Parameter(
    "store", "Name of a store in /api/stores; may be omitted if the server has only one store."
)
_TOPIC = Parameter("topic", "Name of a topic.")
_BEGIN = Parameter("begin", "Stored at this time or later: ISO 8601, ms since 1970, or '2h ago'.")
_END = Parameter("end", "Stored at this time or earlier.")
_AFTER = Parameter("after", "The cursor in the previous answer.")
_LIMIT = Parameter("limit", "Maximum number of messages, 1 to 1,000.", "integer")
_FORMAT = Parameter("format", "json (default), or jsonl: one line per message, when it is found.")


def endpoints(api: Api) -> list[Endpoint]:
    """Return all paths of the API."""
    return [
        Endpoint(
            "/api/stores", api.stores, "The stores, their ranges and the coverage of their indexes", (_AFTER,)
        ),
        Endpoint("/api/topics", api.topics, "Topics and their queues", (_STORE, _TOPIC, _AFTER)),
        Endpoint(
            "/api/topics/{topic}/volume", api.volume, "Messages of a topic over time",
            (_TOPIC, _STORE, _BEGIN, _END, Parameter("parts", "Number of equal periods, 60 by default.", "integer")),
        ),
        Endpoint(
            "/api/messages", api.messages, "Messages by key or id, or by topic and time, newest first",
            (
                _STORE, _TOPIC, Parameter("key", "A key, a unique key, or an offset message id."),
                _BEGIN, _END, _LIMIT,
                Parameter("contains", "A text or condition that the body or a property must contain."),
                Parameter("how", "The kind of `contains`: text (default), regex, json or property."),
                Parameter("after", "The cursor in the previous answer.", "integer"), _FORMAT,
            ),
            has_lines=True,
        ),
        Endpoint(
            "/api/messages/{id}", api.message,
            "The message with an offset message id, or all messages with a unique key",
            (Parameter("id", "An offset message id, or a unique key."), _STORE, _TOPIC, _FORMAT),
            has_lines=True,
        ),
        Endpoint(
            "/api/queues/{topic}/{queue}", api.queue, "Messages of a queue in order",
            (
                _TOPIC, Parameter("queue", "Number of the queue.", "integer"), _STORE,
                Parameter("offset", "First queue offset; by default the oldest in the queue.", "integer"),
                _LIMIT, Parameter("tags", "Only messages with one of these tags: 'a || b'."),
            ),
        ),
        Endpoint(
            "/api/trace", api.trace, "The life of a message: retries, delays, transactions",
            (
                _STORE, Parameter("key", "A key, if `message` is omitted."),
                Parameter("message", "A message id, if `key` is omitted."), _TOPIC, _FORMAT,
            ),
            has_lines=True,
        ),
        Endpoint(
            "/api/check", api.check, "Findings of a check, as JSON lines",
            (_STORE, Parameter("mode", "quick (default) or full. Only one full check runs at a time.")),
            has_lines=True,
        ),
    ]  # fmt: skip


def document(paths: list[Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "reput",
            "version": __version__,
            "description": "Messages of RocketMQ stores. Messages have the form of docs/message-json.md.",
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": _ERROR},
        },
        "security": [{}, {"token": []}],
        "paths": {endpoint.path: {"get": _operation(endpoint)} for endpoint in paths},
    }


_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {"kind": {"type": "string"}, "message": {"type": "string"}},
        }
    },
}


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    only_lines = endpoint.path == "/api/check"
    types = [] if only_lines else ["application/json"]
    content = {
        kind: {"schema": {"type": "object"}}
        for kind in [*types, *([LINES] if endpoint.has_lines else [])]
    }
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    failures = {"400": "A parameter is wrong", "404": "Not found", "500": "Damaged or unreadable"}
    return {
        "summary": endpoint.summary,
        "parameters": [_parameter(parameter, endpoint.path) for parameter in endpoint.parameters],
        "responses": {
            "200": {"description": "Found", "content": content},
            **{code: {"description": text, "content": error} for code, text in failures.items()},
        },
    }


def _parameter(parameter: Parameter, path: str) -> dict[str, Any]:
    is_of_path = f"{{{parameter.name}}}" in path
    return {
        "name": parameter.name,
        "in": "path" if is_of_path else "query",
        "required": is_of_path,
        "description": parameter.text,
        "schema": {"type": parameter.type},
    }
