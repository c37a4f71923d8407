"""Interpret text that users paste into the search field: keys, ids, offsets, or text from a page or a log."""

from __future__ import annotations

import re
from typing import NamedTuple

from reput.errors import UsageError

MOST_KEYS = 20
_ID = re.compile(r"[0-9a-fA-F]{32}|[0-9a-fA-F]{40}|[0-9a-fA-F]{56}")
_NUMBER = re.compile(r"\d{1,3}(?:[,\u00a0]\d{3})+|\d{1,19}")
_PLACE = re.compile(r"(\S+)\s+(\d{1,9})/(\d{1,19})(?:\s*·\s*reput)?")
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
            found = word.strip(_AROUND)
            if found and not found.endswith(_CUT_OFF):
                keys[found] = None
    for key in list(keys):
        # Stores have ids in upper case, but some tools print them in lower case. A key in lower case is possible too.
        if _ID.fullmatch(key):
            keys[key.upper()] = None
    if len(keys) > MOST_KEYS:
        raise UsageError(
            f"{len(keys)} keys; at most {MOST_KEYS} are searched at once", arguments=["key"]
        )
    return Pasted(
        tuple(keys) or (text,),
        offset if offset is not None and offset < _INT64 else None,
        (place[1], int(place[2]), int(place[3])) if place and int(place[3]) < _INT64 else None,
    )
