"""The order in which `java.util.HashMap<String, ...>` hands out its keys: that of a broker's properties string.

Mirrors `java.util.HashMap` of OpenJDK 8 to 21: a table of 16 buckets that doubles when more than three quarters
as many keys are in it; bucket by bucket, each in order of insertion. A bucket of eight keys and more in a table of
64 and more becomes a tree in Java, which keeps that order but for its root: that is not mirrored.
"""

from __future__ import annotations

from functools import lru_cache

from reput.format.java_string import hash_code

_LEAST_BUCKETS = 16


@lru_cache(4096)
def hash_map_order(names: tuple[str, ...]) -> tuple[str, ...]:
    """`names`, given in order of insertion and each once, in the order of iteration."""
    buckets = _LEAST_BUCKETS
    while len(names) > buckets * 3 // 4:
        buckets *= 2
    return tuple(sorted(names, key=lambda name: _bucket(name, buckets)))


def _bucket(name: str, buckets: int) -> int:
    value = hash_code(name) & 0xFFFFFFFF
    return (value ^ value >> 16) & (buckets - 1)
