"""Golden stores: stores written by a real broker, unpacked and with parsed tables.

Most stores are shipped in data/ (see data/PROVENANCE.md): of 4.9.3 six, and the damaged stores of `torn`; of 5.3.3 all.
Two of 4.9.3 are too large or belong to others: tests look for them in ``../shared/golden`` beside the checkout.
"""

import os
import tarfile
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import NoReturn

import pytest

from tests.golden import tables
from tests.golden.sparse import allocated_bytes

DATA = Path(__file__).parent / "data"
CHECKOUT = Path(__file__).parents[2]
OUTSIDE = CHECKOUT.parent / "shared" / "golden"

SHIPPED = ("basic", "extremes", "lmq", "orders", "timed", "tricky")
TORN = "torn"
NOT_SHIPPED = ("git", "defaults")
EVERY_STORE = (*SHIPPED, *NOT_SHIPPED)
"""All stores of 4.9.3 except the damaged ones. The same tests read and rebuild each of them."""
EVERY_FIVE = (
    "five_batch",
    "five_compaction",
    "five_dledger",
    "five_ext",
    "five_multipath",
    "five_rocksdb",
    "five_tiered",
    "five_timer",
    "five_crc",
    "five_default",
)
"""All stores of 5.3.3 except FIVE_LIFE."""
FIVE_LIFE = "five_life"
"""A store of 5.3.3 with other tables (`tables.read_named`)."""

# `defaults` has 1.6 GB of files and takes 49 MB on disk; no other store has half of this.
_SPARSE_LIMIT_BYTES = 400_000_000

DEFAULTS = {
    "mappedFileSizeCommitLog": "1073741824",
    "mappedFileSizeConsumeQueue": "6000000",
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
    "enableLmq": "false",
    "enableMultiDispatch": "false",
    "mapperFileSizeBatchConsumeQueue": "13800000",
}


class StoreNotHereError(LookupError):
    """The tarball of a golden store is neither in data/ nor beside the checkout."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"golden store {name!r}: no {name}.tar.xz in tests/golden/data, nor in ../shared/golden "
            "beside the checkout"
        )
        self.name = name


def passed_over(missing: StoreNotHereError) -> NoReturn:
    """Skip a test that needs a missing store. In CI, fail it, unless the store is not shipped."""
    is_expected = missing.name in (*SHIPPED, TORN, *EVERY_FIVE, FIVE_LIFE) or OUTSIDE.is_dir()
    if is_expected and os.environ.get("CI") == "true":
        pytest.fail(str(missing))
    pytest.skip(str(missing))


class GoldenStore:
    """One golden store. All tests share it: copy it (sparse.copy_store) before changing it.

    `root` holds the tables, `path` is the store directory.
    """

    def __init__(self, name: str, root: Path) -> None:
        self.name = name
        self.root = root
        self.path = root / "store"

    def __repr__(self) -> str:
        return f"GoldenStore({self.name!r})"

    @cached_property
    def config(self) -> dict[str, str]:
        """Return config.properties: only settings that differ from the broker's defaults."""
        lines = (self.root / "config.properties").read_text(encoding="utf-8").splitlines()
        return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))

    def setting(self, name: str) -> str:
        """Return a setting of `config`, or the broker's default."""
        return self.config.get(name, DEFAULTS[name])

    @property
    def commit_log_file_bytes(self) -> int:
        return int(self.setting("mappedFileSizeCommitLog"))

    @property
    def consume_queue_file_bytes(self) -> int:
        return int(self.setting("mappedFileSizeConsumeQueue"))

    @property
    def hash_slots(self) -> int:
        return int(self.setting("maxHashSlotNum"))

    @property
    def index_items(self) -> int:
        return int(self.setting("maxIndexNum"))

    @property
    def enable_multi_dispatch(self) -> bool:
        return self.setting("enableMultiDispatch") == "true"

    @property
    def enable_lmq(self) -> bool:
        return self.setting("enableLmq") == "true"

    @cached_property
    def messages(self) -> list[tables.MessageRow]:
        return tables.read_messages(self.root / "messages.tsv")

    @cached_property
    def blanks(self) -> list[tables.BlankRow]:
        return tables.read_blanks(self.root / "blanks.tsv")

    @cached_property
    def queues(self) -> list[tables.QueueRow]:
        return tables.read_queues(self.root / "queues.tsv")

    @cached_property
    def queue_entries(self) -> list[tables.QueueEntryRow]:
        """Return every queue entry as the broker reads it (only for 5.3.3)."""
        return tables.read_queue_entries(self.root / "cq.tsv")

    @cached_property
    def index(self) -> list[tables.IndexRow]:
        return tables.read_index(self.root / "index.tsv")

    @cached_property
    def queries(self) -> list[tables.QueryRow]:
        return tables.read_queries(self.root / "queries.tsv")

    @cached_property
    def answers(self) -> list[tables.AnswerRow]:
        return tables.read_answers(self.root / "answers.tsv")

    @cached_property
    def puts(self) -> list[tables.PutRow]:
        """Return the recorded puts, or nothing if they were not recorded."""
        path = self.root / "puts.tsv"
        return tables.read_puts(path) if path.exists() else []


class TornCase(GoldenStore):
    """One damaged store of `torn`, and what a broker made of it.

    `path` (= `before`) is the damaged store, `after` the store after a broker was started and stopped,
    `after_more` the store after a further start and 60 more puts. The tables describe `after`, whose
    broker answered `queries` with `answers`. A few cases lack some of these stores and tables. A case
    without its own config or queries has those of its base store `basic`.
    """

    def __init__(self, name: str, root: Path, base: GoldenStore) -> None:
        super().__init__(name, root)
        self.base = base
        self.path = self.before = root / "before"
        self.after = root / "after"
        self.after_more = root / "after_more"

    @cached_property
    def config(self) -> dict[str, str]:
        own = (self.root / "config.properties").exists()
        return super().config if own else self.base.config

    @cached_property
    def queries(self) -> list[tables.QueryRow]:
        own = (self.root / "queries.tsv").exists()
        return super().queries if own else self.base.queries

    @cached_property
    def answers(self) -> list[tables.AnswerRow]:
        return tables.read_answers(self.root / "answers_after.tsv")


def tarball(name: str) -> Path:
    """Return the path of a store's tarball. Raises StoreNotHereError."""
    for folder in (DATA, OUTSIDE):
        path = folder / f"{name}.tar.xz"
        if path.exists():
            return path
    raise StoreNotHereError(name)


def unpack(name: str, target: Path) -> Path:
    """Unpack a store below `target`, keeping its holes; returns the folder of its name."""
    with tarfile.open(tarball(name)) as archive:
        # Python 3.11.0 to 3.11.3 have no extraction filters.
        if hasattr(tarfile, "data_filter"):
            archive.extractall(target, filter="data")
        else:
            archive.extractall(target)
    root = target / name
    if (used := allocated_bytes(root)) > _SPARSE_LIMIT_BYTES:
        raise OSError(f"{root}: {used} bytes on disk; this file system does not keep sparse files")
    return root


class GoldenLibrary:
    """Unpacks each store once, below one folder."""

    def __init__(self, new_folder: Callable[[], Path]) -> None:
        self._new_folder = new_folder
        self._roots: dict[str, Path] = {}
        self._stores: dict[str, GoldenStore] = {}

    def _root(self, name: str) -> Path:
        if name not in self._roots:
            tarball(name)
            self._roots[name] = unpack(name, self._new_folder())
        return self._roots[name]

    def store(self, name: str) -> GoldenStore:
        """Return the store of that name. Raises StoreNotHereError."""
        if name not in self._stores:
            self._stores[name] = GoldenStore(name, self._root(name))
        return self._stores[name]

    def torn_names(self) -> list[str]:
        return sorted(path.name for path in self._root(TORN).iterdir() if path.is_dir())

    def torn(self, case: str) -> TornCase:
        """Return one case of `torn`. Raises StoreNotHereError."""
        return TornCase(case, self._root(TORN) / case, self.store("basic"))
