"""Match records with wanted keys: hashes, look-ups in a sorted list and verdicts follow the plain rules."""

from random import Random
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from reput.core.log.reader import CommitLogReader
from reput.core.log.sources import StoreLog
from reput.errors import StoreError
from reput.format.index_file import index_key
from reput.format.index_file import key_hash as plain_hash
from reput.format.java_string import encode_utf8
from reput.kernels import key_match as kernel
from reput.kernels.jit import new_rows
from reput.kernels.llvm import INTERPRETED
from tests.oracle.forge import write_store
from tests.oracle.random_logs import LogOptions, random_log

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")

RECORDS = 30 if INTERPRETED else 120
TEXTS = ("", "a", "orders", "order-100377", "中文主题", "emoji-😀", "T" * 127, "\ufffd", "a#b", "é")


def as_texts(texts: list[str]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    parts = [encode_utf8(text) for text in texts]
    at = np.cumsum([0, *map(len, parts)]).astype(np.int64)
    return np.frombuffer(b"".join(parts) or b"\0", np.uint8).copy(), at


def test_hashes_are_those_of_the_index() -> None:
    pairs = [(topic, key) for topic in TEXTS for key in TEXTS]
    hashes = np.empty(len(pairs), np.int32)
    topics, keys = as_texts([pair[0] for pair in pairs]), as_texts([pair[1] for pair in pairs])
    kernel.hash_keys(*topics, *keys, hashes)
    assert hashes.tolist() == [plain_hash(index_key(*pair)) for pair in pairs]


@pytest.mark.parametrize("count", [0, 1, 2, 7, 300])
@pytest.mark.parametrize("shift", [31, 28, 20])
def test_wanted_hashes_are_found(count: int, shift: int) -> None:
    random = Random(count)
    wanted = np.unique(np.array([random.randrange(1 << 31) for _ in range(count)], np.int32))
    asked = [*wanted[::2].tolist(), 0, 2**31 - 1, *(random.randrange(1 << 31) for _ in range(50))]
    key_hash = np.array(asked, np.int32)
    edges = np.arange((1 << (31 - shift)) + 1, dtype=np.int64) << shift
    found = np.empty(len(key_hash), np.int64)
    hits = kernel.find_wanted(key_hash, wanted, np.searchsorted(wanted, edges), shift, found)
    assert found[:hits].tolist() == np.flatnonzero(np.isin(key_hash, wanted)).tolist()


@pytest.mark.parametrize("seed", range(4))
def test_verdicts_are_those_of_a_plain_reading(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Look for keys of many records at the beginning of each record, and at a place inside it."""
    made = random_log(seed, LogOptions(records=RECORDS, irregular=True))
    path = write_store(tmp_path_factory.mktemp("store"), [(s, bytes(d)) for s, d in made.files])
    log, random = CommitLogReader(StoreLog(path)), Random(seed)
    file = log.files[0]
    data = np.frombuffer(log.read(file, file.start, file.size), np.uint8)
    places, pairs = [], []
    position = 0
    while position < len(data):
        try:
            record = log.locate(position).keyed()
        except StoreError:
            break
        pairs += [(record.topic, key) for key in record.keys]
        pairs += [("nowhere", key) for key in record.keys[:1]]
        places += [position, position + random.randrange(1, record.size_bytes)]
        position += record.size_bytes
    pairs = [pair for pair in pairs if all(map(_is_utf8, pair))]
    asked = [Asked(place, *pair) for place in places for pair in random.sample(pairs, 5)]
    own = [Asked(place, *pair) for place in places[::2] for pair in _own_keys(log, place)]
    collisions = [each._replace(topic="nowhere", collides_with=each.key_hash) for each in own]
    asked += [*own, *collisions]
    verdicts = _verdicts(data, asked)
    assert verdicts == [_plain_verdict(log, each) for each in asked]
    assert {kernel.OTHER, kernel.MATCH, kernel.STALE} <= set(verdicts)


class Asked(NamedTuple):
    """A key, and the place in the log where it is expected. `collides_with` replaces the hash of the key."""

    place: int
    topic: str
    key: str
    collides_with: int | None = None

    @property
    def key_hash(self) -> int:
        if self.collides_with is not None:
            return self.collides_with
        return plain_hash(index_key(self.topic, self.key))


def _is_utf8(text: str) -> bool:
    return text.encode("utf-8", "replace") == text.encode("utf-8", "surrogatepass")


def _own_keys(log: CommitLogReader, place: int) -> list[tuple[str, str]]:
    record = log.locate(place).keyed()
    return [(record.topic, key) for key in record.keys if _is_utf8(key)]


def _verdicts(data: npt.NDArray[np.uint8], asked: list[Asked]) -> list[int]:
    begins = np.array(sorted({each.place for each in asked}))
    records = new_rows(len(begins), kernel.RECORD_DTYPE)
    ends = np.full(len(begins), len(data))
    kernel.locate_records(data, begins, ends, np.ones(len(begins), np.uint8), records)
    offsets = np.array([each.place for each in asked])
    hashes = np.array([each.key_hash for each in asked], np.int32)
    topics, keys = as_texts([each.topic for each in asked]), as_texts([each.key for each in asked])
    verdicts = np.empty(len(asked), np.uint8)
    kernel.match_keys(
        data, records, np.arange(len(asked)), np.searchsorted(begins, offsets), offsets, hashes,
        *topics, *keys, verdicts,
    )  # fmt: skip
    found: list[int] = verdicts.tolist()
    return found


def _plain_verdict(log: CommitLogReader, asked: Asked) -> int:
    try:
        record = log.locate(asked.place).keyed()
    except StoreError:
        return kernel.STALE
    in_place = record.stated_offset == asked.place
    if record.topic == asked.topic and asked.key in record.keys:
        return kernel.MATCH if in_place else kernel.STALE_MATCH
    return kernel.OTHER if in_place and record.has_key_hash(asked.key_hash) else kernel.STALE


def test_a_record_that_is_not_read_whole_asks_for_what_it_lacks() -> None:
    made = random_log(2, LogOptions(records=RECORDS))
    data = np.frombuffer(bytes(made.files[0][1]), np.uint8)
    total = int.from_bytes(data[:4].tobytes(), "big")
    at_end, more = np.zeros(1, np.uint8), 0
    for end in range(total + 1):
        record = new_rows(1, kernel.RECORD_DTYPE)
        kernel.locate_records(data, np.zeros(1, np.int64), np.array([end]), at_end, record)
        status, needed = int(record["status"][0]), int(record["needed"][0])
        assert status == (kernel.MORE_BYTES if end < total else kernel.WHOLE)
        assert status == kernel.WHOLE or end < needed <= total
        more += status == kernel.MORE_BYTES
        kernel.locate_records(data, np.zeros(1, np.int64), np.array([end]), at_end + 1, record)
        assert int(record["status"][0]) == (kernel.NO_RECORD if end < total else kernel.WHOLE)
    assert more == total
