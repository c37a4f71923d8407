"""Keys and answers of a look-up as Arrow holds them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import pyarrow as pa

from reput.errors import UsageError
from reput.lookup.bulk import Lookup, LookupOptions, StorePath, run_lookup
from reput.lookup.key_parts import KeyPart, stage_parts
from reput.tasks import Runner


class Keys(NamedTuple):
    """Batches of keys, which are read once. Unlike a reader of Arrow's they raise errors as they are."""

    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]


def find(
    stores: StorePath | Sequence[StorePath],
    keys: Keys,
    runner: Runner,
    **options: Unpack[LookupOptions],
) -> Lookup:
    """Look up keys by tasks of `runner`, which sees this machine's files. Raises as `run_lookup` does."""
    stage = partial(stage_keys, keys.batches, threads=runner.parallelism)
    return run_lookup(stores, keys.schema, stage, lambda: runner, **options)


def keys_of(keys: Any) -> Keys:
    """What Arrow reads, with strings in the forms that a look-up takes. Raises UsageError."""
    if isinstance(keys, list | tuple | Mapping):
        keys = _table_of(keys)
    try:
        reader = pa.RecordBatchReader.from_stream(keys)
    except TypeError as error:
        raise UsageError(
            f"keys must be a table or a reader of Arrow's, or a list of (topic, key), "
            f"not {type(keys).__name__}",
            arguments=["keys"],
        ) from error
    schema = pa.schema([field.with_type(_plain(field.type)) for field in reader.schema])
    return Keys(schema, reader if schema == reader.schema else reader.cast(schema))


def _table_of(keys: Sequence[Any] | Mapping[str, Any]) -> pa.Table:
    """Of rows or columns of Python's. Raises UsageError."""
    try:
        if isinstance(keys, Mapping):
            return pa.table(dict(keys))
        if all(isinstance(row, Mapping) for row in keys) and keys:
            return pa.Table.from_pylist(list(keys))
        pairs = [(str(topic), str(key)) for topic, key in keys]
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise UsageError(
            f"keys: not rows of (topic, key), nor columns: {error}", arguments=["keys"]
        ) from error
    topics, texts = zip(*pairs, strict=True) if pairs else ((), ())
    return pa.table({"topic": pa.array(topics, pa.string()), "key": pa.array(texts, pa.string())})


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    return pa.large_string() if pa.types.is_string_view(kind) else kind


def stage_keys(keys: Iterable[pa.RecordBatch], folder: Path, threads: int = 1) -> list[KeyPart]:
    """Stage keys by this process. Raises what `stage_parts` does, and what reading the keys does."""
    return list(stage_parts(keys, folder / "keys", threads))


def read_and_close(found: Lookup) -> pa.RecordBatchReader:
    """Return a reader of an answer, whose staged files are deleted when it is read to its end."""

    def batches() -> Iterator[pa.RecordBatch]:
        with found:
            for batch in found.batches():
                yield batch.replace_schema_metadata(found.schema.metadata)

    return pa.RecordBatchReader.from_batches(found.schema, batches())
