"""Get schemas by id from a registry with Confluent's API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from reput.errors import StoreUnreachableError
from reput.wings.lakes.body_decoders import UndecodableBodyError
from reput.wings.lakes.http_json import HttpService

HEADER_BYTES = 5
# The first limit is for bodies that do not begin with a schema id: their bytes look like ids, and each would cause a
# request. The second limit ends endless chains of references.
_MOST_UNKNOWN = 1_000
_MOST_REFERENCES = 100


def schema_id(body: bytes) -> int | None:
    """Return the schema id at the beginning of a body; None if the body has no such header."""
    if len(body) < HEADER_BYTES or body[0]:
        return None
    return int.from_bytes(body[1:HEADER_BYTES], "big")


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema of a registry.

    Attributes:
        text: The text of the schema.
        kind: AVRO, PROTOBUF or JSON.
        references: The schemas to which this schema refers, by name. Each comes after the schemas that it needs itself.
    """

    text: str
    kind: str
    references: Mapping[str, str] = field(default_factory=dict)


class SchemaRegistry:
    """Gets schemas from a registry, and keeps them: the schema of an id never changes.

    Args:
        url: URL of the registry, which may contain user and password.

    Raises:
        UsageError: The URL is not valid.
    """

    def __init__(self, url: str) -> None:
        self._service = HttpService(url, "body")
        self.name = self._service.name
        self._known: dict[int, RegisteredSchema] = {}
        self._unknown: set[int] = set()

    def schema(self, number: int) -> RegisteredSchema:
        """Return the schema of an id.

        Raises:
            UndecodableBodyError: The id is unknown. After too many unknown ids, the registry is not asked any more.
            StoreUnreachableError: The registry does not answer.
        """
        if number in self._known:
            return self._known[number]
        if number not in self._unknown and len(self._unknown) >= _MOST_UNKNOWN:
            raise UndecodableBodyError(
                f"the registry had no schema for {_MOST_UNKNOWN:,} other ids, so it was not asked for the body's id",
                number,
            )
        answer = None if number in self._unknown else self._service.get(f"schemas/ids/{number}")
        if answer is None:
            self._unknown.add(number)
            raise UndecodableBodyError("the registry has no schema with the body's id", number)
        self._known[number] = self._registered(answer, f"schemas/ids/{number}")
        return self._known[number]

    def _registered(self, answer: Any, path: str) -> RegisteredSchema:
        references: dict[str, str] = {}
        text = self._text_of(answer, path)
        self._follow(answer, path, references)
        return RegisteredSchema(text, str(answer.get("schemaType", "AVRO")), references)

    def _follow(self, answer: Any, path: str, schemas: dict[str, str]) -> None:
        """Add the schemas to which a schema refers, each after its own references."""
        for reference in answer.get("references") or ():
            try:
                name, subject, version = (reference[key] for key in ("name", "subject", "version"))
            except (KeyError, TypeError):
                raise self._strange(path) from None
            if name in schemas:
                continue
            if len(schemas) >= _MOST_REFERENCES:
                raise self._strange(path)
            # The name of a subject may contain a slash, which must not divide the path.
            place = (
                f"subjects/{quote(str(subject), safe='')}/versions/{quote(str(version), safe='')}"
            )
            inner = self._service.get(place)
            if inner is None:
                raise UndecodableBodyError(
                    "the registry lacks a schema to which another schema refers", subject
                )
            schemas[name] = ""  # Marks the name as visited, because references may form a cycle.
            self._follow(inner, place, schemas)
            # The dict still has the empty text that marks this name as visited. Delete the empty text before the schema
            # is inserted, so that the schema comes last in the dict, after the schemas to which it refers.
            del schemas[name]
            schemas[name] = self._text_of(inner, place)

    def _text_of(self, answer: Any, path: str) -> str:
        if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
            raise self._strange(path)
        text: str = answer["schema"]
        return text

    def _strange(self, path: str) -> StoreUnreachableError:
        return StoreUnreachableError(f"{self.name}/{path}: not the answer of a schema registry")
