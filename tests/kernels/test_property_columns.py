"""Properties as columns match the specification, in arrays without a spare byte."""

from random import Random

import numpy as np
import pytest

from reput.format.java_string import decode_utf8
from reput.format.properties import decode_properties
from reput.kernels import property_columns as kernel
from reput.kernels.java_utf8 import WORST_GROWTH
from reput.kernels.jit import new_rows
from reput.kernels.llvm import INTERPRETED
from reput.kernels.record_columns import PARTS_DTYPE

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")

HEADER_BYTES = 88  # the minimum of bytes before the properties of a record
ROWS = 20 if INTERPRETED else 60
LONG = b"\x02".join(b"name-%d\x01%d" % (number, number) for number in range(24))
PLAIN = (
    b"", b"\x02", b"\x01", b"a\x01", b"\x01a", b"a", b"a\x01b", b"a\x01b\x02", b"\x02\x02a\x01b\x02\x02c\x01d",
    b"a\x01\x01", b"a\x01\x01\x01\x02b\x01c\x01\x02", b"KEYS\x01k l\x02UNIQ_KEY\x01u\x02TAGS\x01t",
    b"UNIQ_KEX\x01u\x02KEYT\x01k\x02AGS\x01t\x02XTAGS\x01t", b"eight-by\x01" + b"v" * 56 + b"\x02n\x01w",
    b"n" * 64 + b"\x01" + b"v" * 64, b"n" * 300 + b"\x01v\x02m\x01" + b"v" * 300, b"\0\x01\0\x02a\0\x01b", LONG,
)  # fmt: skip
OTHER = (
    b"a\x01b\x02a\x01c", "名\x01值".encode(), b"a\x01b\x02c\x01" + b"v" * 100 + b"\xff",
    LONG + b"\x02x\x01y", b"KEYS\x01a\x02KEYS\x01b", b"a\x01\xed\xa0\x80",
)  # fmt: skip


class Split:
    """Run the kernels over properties. Each of `texts` follows a header, and the last one ends the data."""

    def __init__(self, texts: list[bytes]) -> None:
        self.parts, self.spans = (
            new_rows(len(texts), PARTS_DTYPE),
            new_rows(len(texts), kernel.SPANS_DTYPE),
        )
        content = bytearray()
        for part, text in zip(self.parts, texts, strict=True):
            content += bytes(HEADER_BYTES)
            part["properties"], part["properties_bytes"] = len(content), len(text)
            content += text
        self.data = np.frombuffer(content, np.uint8)
        most = sum((len(text) + 1) // kernel.LEAST_PROPERTY_BYTES for text in texts) + 1
        worst = sum(len(text) * (1 if text.isascii() else WORST_GROWTH) for text in texts) + 8
        self.maps = np.zeros(len(texts) + 1, np.int32)
        self.name_offsets, self.value_offsets = np.zeros(most, np.int32), np.zeros(most, np.int32)
        self.names, self.values = np.zeros(worst, np.uint8), np.zeros(worst, np.uint8)
        self.progress = np.zeros(2, np.int64)

    def run(self, *, with_plain: bool = True) -> int:
        """Return the number of rows that `split_properties` left to `split_any_properties`."""
        out = (
            self.spans,
            self.maps,
            self.name_offsets,
            self.names,
            self.value_offsets,
            self.values,
        )
        if with_plain:
            kernel.split_properties(self.data, self.parts, *out, self.progress)
        others = len(self.parts) - int(self.progress[0])
        if others:
            kernel.split_any_properties(self.data, self.parts, *out, self.progress)
        return others

    def rows(self) -> list[dict[str, str]]:
        return [
            {
                self._text(self.names, self.name_offsets, pair): self._text(
                    self.values, self.value_offsets, pair
                )
                for pair in range(self.maps[row], self.maps[row + 1])
            }
            for row in range(len(self.parts))
        ]

    @staticmethod
    def _text(texts: np.ndarray, offsets: np.ndarray, number: int) -> str:
        return bytes(texts[offsets[number] : offsets[number + 1]]).decode()

    def wanted(self, row: int) -> dict[str, bytes]:
        """Return the bytes at a row's positions of unique key, keys and tags, by column."""
        span = self.spans[row]
        return {
            name: bytes(self.data[span[name] :][: span[f"{name}_bytes"]])
            for name in ("unique_key", "keys", "tags")
        }


def check(split: Split, texts: list[bytes]) -> None:
    expected = [decode_properties(decode_utf8(text)) for text in texts]
    assert split.rows() == expected
    assert [list(row) for row in split.rows()] == [list(row) for row in expected]
    assert split.progress.tolist() == [len(texts), split.maps[-1]]
    for row, properties in enumerate(expected):
        found = {name: decode_utf8(value) for name, value in split.wanted(row).items()}
        assert found == {
            name: properties.get(stored, "")
            for name, stored in (("unique_key", "UNIQ_KEY"), ("keys", "KEYS"), ("tags", "TAGS"))
        }


@pytest.mark.parametrize("text", PLAIN, ids=range(len(PLAIN)))
def test_plain_properties_need_the_first_kernel_alone(text: bytes) -> None:
    for texts in ([text], [text, b"z\x01z", text]):
        split = Split(texts)
        assert split.run() == 0
        check(split, texts)


@pytest.mark.parametrize("text", OTHER, ids=range(len(OTHER)))
def test_others_are_left_to_the_second(text: bytes) -> None:
    texts = [b"z\x01z", text, b"KEYS\x01k"]
    split = Split(texts)
    assert split.run() == 2
    check(split, texts)


@pytest.mark.parametrize("seed", range(4 if INTERPRETED else 25))
def test_random_properties(seed: int) -> None:
    random = Random(seed)
    texts = [_random_text(random) for _ in range(ROWS)]
    for with_plain in (True, False):
        split = Split(texts)
        split.run(with_plain=with_plain)
        check(split, texts)


def _random_text(random: Random) -> bytes:
    if random.random() < 0.3:
        return random.choice(PLAIN + OTHER)
    names = (
        b"KEYS",
        b"TAGS",
        b"UNIQ_KEY",
        b"WAIT",
        b"a",
        b"name",
        b"a-long-name",
        b"n" * 70,
        "é".encode(),
    )
    alphabet = b"ab \x00\x7f\x01\x02" if random.random() < 0.5 else b"abcdefgh"
    chunks = []
    for _ in range(random.randrange(9)):
        value = bytes(random.choices(alphabet, k=random.choice((0, 1, 3, 7, 8, 9, 31, 63, 64, 65))))
        chunks.append(random.choice(names) + b"\x01" * (random.random() < 0.9) + value)
    return b"\x02".join(chunks) + b"\x02" * random.randrange(2)
