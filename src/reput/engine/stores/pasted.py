"""Interpret text that users paste into a search: keys, ids, offsets, places in queues, or text from a page or a log."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from reput.base import Finding, counted
from reput.core import MessageStore, coverage_of_id, finding_of
from reput.errors import FormatError, MessageNotFoundError, UsageError
from reput.format.commit_log import MessageExt

MOST_KEYS = 20
_NUMBER = re.compile(r"\d{1,3}(?:[,\u00a0]\d{3})+|\d{1,19}")
_PLACE = re.compile(r"(\S+?)(?:\s+|/)(\d{1,9})/(\d{1,19})(?:\s*·\s*reput)?")
_LABEL = re.compile(r"(?:keys?|unique ?key|uniq_key|msg_?id|message ?id|offset)\s*[:=]\s*", re.I)
_AROUND = "\"'`<>()[]{},;"
_CUT_OFF = "…"
_INT64 = 1 << 63


class Pasted(NamedTuple):
    """The possible meanings of a text; a search finds messages for any of them.

    Attributes:
        keys: Keys, unique keys and ids.
        offset: A physical offset.
        place: Topic, queue and queue offset.
    """

    keys: tuple[str, ...]
    offset: int | None = None
    place: tuple[str, int, int] | None = None

    def at_places(self, store: MessageStore) -> tuple[list[MessageExt], list[Finding]]:
        """Return the messages at the places that the text names: an offset id, a physical offset, or a queue offset.

        Also return why messages at these places cannot be read. If a text is no name of a place, such as most pasted
        numbers, nothing is there.
        """
        messages, unread = list[MessageExt](), list[Finding]()
        for key in self.keys:
            if (message := store.get_by_offset_id(key)) is not None:
                messages.append(message)
            elif (coverage := coverage_of_id(store, key)) is not None:
                unread += coverage.unreadable
        reads: list[Callable[[], MessageExt]] = []
        if (offset := self.offset) is not None:
            reads.append(lambda: store.get(offset))
        if (place := self.place) is not None:
            reads.append(lambda: store.get_by_queue(*place))
        for read in reads:
            try:
                messages.append(read())
            except MessageNotFoundError:
                continue
            except FormatError as error:
                unread.append(finding_of(error))
        return messages, unread


def understood(given: str) -> Pasted:
    """Return the possible meanings of a text. Any text without white space may be a key.

    Raises:
        UsageError: The text has too many keys.
    """
    text = given.strip()
    keys = dict.fromkeys([text] if len(text.split()) == 1 else [])
    number = _NUMBER.fullmatch(text.strip(_AROUND))
    offset = int(re.sub(r"\D", "", text)) if number else None
    place = _PLACE.fullmatch(text)
    if number is None:
        for word in re.split(r"[\s,;|]+", _LABEL.sub(" ", text)):
            key = word.strip(_AROUND)
            if key and not key.endswith(_CUT_OFF):
                keys[key] = None
    if len(keys) > MOST_KEYS:
        raise UsageError(
            f"{counted(len(keys), 'key')}; at most {MOST_KEYS} are searched at once",
            arguments=["key"],
        )
    return Pasted(
        tuple(keys) or (text,),
        offset if offset is not None and offset < _INT64 else None,
        (place[1], int(place[2]), int(place[3])) if place and int(place[3]) < _INT64 else None,
    )
