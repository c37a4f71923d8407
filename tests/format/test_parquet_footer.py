"""Footers of Parquet files: valid ones pass, and no changed byte ends the process that reads them."""

import os
import resource
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reput.errors import FormatError
from reput.format.parquet import TAIL_BYTES, check_footer, footer_bytes
from reput.io.parquet import opened_parquet

TABLE = pa.table(
    {
        "number": pa.array([1, None, 3]),
        "text": ["a", "b", None],
        "list": pa.array([[1], [], None], pa.list_(pa.int32())),
        "struct": [{"x": 1.5, "y": True}, None, {"x": 2.5, "y": False}],
        "fixed": pa.array([b"ab", b"cd", None], pa.binary(2)),
        "time": pa.array([1, 2, 3], pa.timestamp("ms")),
        "map": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
    }
)


def written(path: Path) -> tuple[bytes, bytes]:
    """Return the pages and the footer of a file, without its tail."""
    pq.write_table(TABLE, path, row_group_size=2, write_page_index=True)
    data = path.read_bytes()
    length = footer_bytes(data[-TAIL_BYTES:], len(data))
    assert length
    return data[: -TAIL_BYTES - length], data[-TAIL_BYTES - length : -TAIL_BYTES]


def read_all(path: Path) -> None:
    """Read everything that pyarrow describes."""
    with opened_parquet(path) as file:
        for number in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(number)
            for place in range(group.num_columns):
                statistics = group.column(place).statistics
                if statistics is not None and statistics.has_min_max:
                    assert statistics.min is not statistics
        file.read()


def test_a_valid_footer_passes(tmp_path: Path) -> None:
    _, footer = written(tmp_path / "file")
    check_footer(footer, len(footer) + 10_000)
    read_all(tmp_path / "file")
    for length in range(len(footer)):
        with pytest.raises(
            ValueError, match=r"cut off|more items than bytes|no root|fewer elements"
        ):
            check_footer(footer[:length], 10_000)


def ended(path: Path) -> int:
    """Return how a child ends that reads a file: 0, or the number of the signal, negative."""
    child = os.fork()
    if child == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            read_all(path)
        except (
            FormatError,
            pa.ArrowException,
            OSError,
            ValueError,
            NotImplementedError,
            MemoryError,
        ):
            pass
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_no_changed_byte_of_a_footer_ends_the_process(tmp_path: Path, seed: int) -> None:
    pages, footer = written(tmp_path / "file")
    random = Random(seed)
    for at in random.sample(range(len(footer)), 150):
        changed = bytearray(footer)
        changed[at] = random.choice((changed[at] ^ 1 << random.randrange(8), random.randrange(256)))
        tail = len(changed).to_bytes(4, "little") + b"PAR1"
        (tmp_path / "file").write_bytes(pages + changed + tail)
        assert ended(tmp_path / "file") == 0, (at, footer[at], changed[at])


def test_a_repetition_type_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "file")
    data = (tmp_path / "file").read_bytes()
    at = data.index(b"\x25\x02\x18\x01a") + 1
    (tmp_path / "file").write_bytes(data[:at] + b"\x06" + data[at + 1 :])
    with pytest.raises(FormatError, match="footer is damaged"), opened_parquet(tmp_path / "file"):
        pass
