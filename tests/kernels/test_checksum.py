"""Body checksums against zlib's."""

import zlib
from dataclasses import replace
from itertools import product
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reput.engine.rebuild.warm_up import small_message
from reput.format.commit_log import (
    BODY_CRC_POSITION,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_STORE_HOST_V6,
    encode,
)
from reput.format.host import Host
from reput.kernels.checksum import body_crcs, find_wrong_bodies
from reput.kernels.llvm import INTERPRETED


def crcs(data: bytes, places: list[tuple[int, int]]) -> list[int]:
    crc = np.zeros(len(places), np.int32)
    body_crcs(
        np.frombuffer(bytearray(data), np.uint8),
        np.array([position for position, _ in places], np.int64),
        np.array([length for _, length in places], np.int64),
        crc,
    )
    values: list[int] = crc.tolist()
    return values


@given(st.binary(max_size=80), st.integers(0, 20))
def test_the_crc_is_zlibs_without_its_top_bit(body: bytes, before: int) -> None:
    data = bytes(before) + body
    assert crcs(data, [(before, len(body))]) == [zlib.crc32(body) & 0x7FFFFFFF]


def test_every_length_and_alignment() -> None:
    data = Random(1).randbytes(300)
    starts, lengths = (range(3), range(100)) if INTERPRETED else (range(17), range(280))
    places = [(start, length) for start in starts for length in lengths]
    expected = [zlib.crc32(data[start : start + length]) & 0x7FFFFFFF for start, length in places]
    assert crcs(data, places) == expected


def test_a_long_body() -> None:
    data = Random(2).randbytes(1_000 if INTERPRETED else 1_000_003)
    assert crcs(data, [(0, len(data))]) == [zlib.crc32(data) & 0x7FFFFFFF]


def test_a_body_that_is_not_inside_has_no_crc() -> None:
    big = 2**63 - 1
    outside = [(-1, 1), (0, 11), (10, 1), (11, 0), (5, -1), (big, 1), (1, big), (-big, big), (5, 6)]
    assert crcs(bytes(10), outside) == [-1] * len(outside)
    assert crcs(bytes(10), [(10, 0), (0, 0)]) == [0, 0]


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_any_place_is_safe(position: int, length: int) -> None:
    inside = 0 <= position <= 10 and 0 <= length <= 10 - position
    assert (crcs(bytes(10), [(position, length)]) != [-1]) == inside


def test_no_bodies() -> None:
    assert crcs(b"", []) == []


def test_wrong_bodies_are_found_whatever_the_hosts() -> None:
    host = {False: Host("127.0.0.1", 1), True: Host("::1", 1)}
    data, positions, flags = bytearray(b"\0" * 5), [], []
    for born, store, body in product((False, True), (False, True), (b"", b"a", b"body" * 30)):
        record = encode(
            replace(
                small_message(), born_host=host[born], store_host=host[store], body=body,
                sys_flag=SYS_FLAG_BORN_HOST_V6 * born | SYS_FLAG_STORE_HOST_V6 * store,
            )
        )  # fmt: skip
        positions.append(len(data))
        flags.append(SYS_FLAG_BORN_HOST_V6 * born | SYS_FLAG_STORE_HOST_V6 * store)
        data += record

    def wrong() -> list[int]:
        out = np.zeros(len(positions), np.int64)
        count = find_wrong_bodies(
            np.frombuffer(data, np.uint8), np.array(positions), np.array(flags, np.int32), out
        )
        return [int(row) for row in out[:count]]

    assert wrong() == []
    for row, position in enumerate(positions):
        data[position + BODY_CRC_POSITION] ^= 1
        assert wrong() == ([row] if row % 3 else [])  # an empty body needs no CRC
        data[position + BODY_CRC_POSITION] ^= 1
