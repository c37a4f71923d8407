"""The pipeline on Spark: sessions, sources, the parallel rebuild, the bulk look-up. Nothing else imports pyspark."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reput.spark.bulk_lookup import lookup
    from reput.spark.source import register

__all__ = ["lookup", "register"]


def __getattr__(name: str) -> object:
    """What has a name here is imported when it is asked for: the kernels take a moment to load."""
    if name == "lookup":
        from reput.spark.bulk_lookup import lookup

        return lookup
    if name == "register":
        from reput.spark.source import register

        return register
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
