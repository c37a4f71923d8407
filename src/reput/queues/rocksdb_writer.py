"""A database of queues that is written: tables in the order of their keys, and the folder that holds them.

Mirrors `RocksDBOptionsFactory` (tag rocketmq-all-5.3.3) where its options show in files: format 5, blocks of 32 KiB,
Bloom filters of 16 bits a key, LZ4 for entries and no compression for ends. A broker opens the folder with its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from reput.errors import MissingExtraError, ReputError, StoreAccessError
from reput.files.anchors import give, native
from reput.files.writer import make_folder, remove_tree
from reput.format.rocksdb_queue import OFFSETS_FAMILY

_BLOCK_BYTES, _FILTER_BITS, _TABLE_FORMAT = 32 << 10, 16, 5
_NOT_OF_A_BROKER = ("rocksdict-config.json", "LOG", "LOCK")


class TableWriter:
    """Takes items in the order of their keys."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def put(self, keys: Iterable[bytes], values: Iterable[bytes]) -> None:
        writer = self._writer
        for key, value in zip(keys, values, strict=True):
            writer[key] = value


@contextmanager
def table_writer(path: Path) -> Iterator[TableWriter]:
    """A new table, which is whole and synced when the body has ended. Raises StoreAccessError, MissingExtraError."""
    rocksdict = require_library()
    writer = rocksdict.SstFileWriter(options=_options(rocksdict, is_compressed=True))
    with _explained(path), native(path) as place:
        writer.open(place)
        yield TableWriter(writer)
        writer.finish()


def create_database(folder: Path, tables: list[str], ends: Mapping[bytes, bytes]) -> None:
    """Make a database of tables, whose key ranges must not overlap, and of the items of the family `offset`.

    The tables are moved into it. Raises StoreAccessError, MissingExtraError.
    """
    rocksdict = require_library()
    make_folder(folder)
    with _explained(folder), ExitStack() as stack:
        options = _options(rocksdict, is_compressed=True)
        options.create_if_missing(True)
        database = rocksdict.Rdict(stack.enter_context(native(folder)), options)
        try:
            if tables:
                how = rocksdict.IngestExternalFileOptions()
                how.set_move_files(True)
                places = [stack.enter_context(native(table)) for table in tables]
                database.ingest_external_file(places, how)
            family = database.create_column_family(
                OFFSETS_FAMILY, _options(rocksdict, is_compressed=False)
            )
            for key, value in ends.items():
                family[key] = value
            family.flush()
            database.flush()
            family.close()
        finally:
            database.close()
    for name in _NOT_OF_A_BROKER:
        remove_tree(folder / name)
    for path in folder.glob("LOG.old.*"):
        remove_tree(path)
    for path in folder.iterdir():
        give(path)


def _options(rocksdict: Any, is_compressed: bool) -> Any:
    kinds = rocksdict.DBCompressionType
    options = rocksdict.Options(raw_mode=True)
    options.set_compression_type(kinds.lz4() if is_compressed else kinds.none())
    blocks = rocksdict.BlockBasedOptions()
    blocks.set_format_version(_TABLE_FORMAT)
    blocks.set_block_size(_BLOCK_BYTES)
    blocks.set_bloom_filter(_FILTER_BITS, False)
    options.set_block_based_table_factory(blocks)
    return options


def require_library() -> Any:
    """rocksdict. Raises MissingExtraError."""
    try:
        import rocksdict
    except ImportError:
        raise MissingExtraError(
            "queues in RocksDB need rocksdict: pip install 'reput[rocksdb]'"
        ) from None
    return rocksdict


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ReputError):
        raise
    except Exception as error:  # rocksdict raises nothing narrower
        lines = str(error).splitlines() or [type(error).__name__]
        raise StoreAccessError(f"{path}: RocksDB cannot write it: {lines[0]}") from None
