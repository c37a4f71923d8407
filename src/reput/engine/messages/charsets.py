"""Convert text bodies from other charsets, such as GB18030 or GBK, to UTF-8."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from reput.engine.messages.parsed_bodies import Misfit, ParsedBodies, whole_misfit

UTF_8 = "utf-8"


def with_charset(
    bodies: pa.BinaryArray, charset: str, parse: Callable[[pa.BinaryArray], ParsedBodies]
) -> ParsedBodies:
    """Convert bodies to UTF-8, and parse them.

    A body that is not valid in the charset becomes null, and gets a `Misfit`, the reason why it has no value.
    """
    if charset == UTF_8:
        return parse(bodies)
    misfits: dict[int, list[Misfit]] = {}
    texts: list[bytes | None] = []
    for row, body in enumerate(bodies.to_pylist()):
        try:
            texts.append(None if body is None else body.decode(charset).encode())
        except UnicodeError:
            # Even encode() may fail: a text that was decoded from UTF-7 may contain unpaired surrogates, which UTF-8
            # cannot encode.
            texts.append(None)
            misfits[row] = [whole_misfit(f"the body is not {charset}")]
    parsed = parse(pa.array(texts, pa.binary()))
    return ParsedBodies(parsed.values, {**parsed.misfits, **misfits})
