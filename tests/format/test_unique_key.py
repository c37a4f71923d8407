"""Decode unique keys."""

from datetime import datetime

from reput.format.host import Host
from reput.format.message_id import UniqueKeys, unique_key_prefix


def ms(*face: int) -> int:
    return int(datetime(*face).timestamp() * 1000)  # type: ignore[arg-type]


def test_address_process_and_loader() -> None:
    assert unique_key_prefix(Host("10.20.30.40", 0), 0x1_2345, -2) == "0A141E282345FFFFFFFE"


def test_time_counts_from_the_local_months_begin() -> None:
    keys = UniqueKeys("F" * 20)
    assert keys.next(ms(2024, 2, 1) + 5) == "F" * 20 + "00000005" + "0000"
    assert keys.next(ms(2024, 2, 29, 23)) == "F" * 20 + f"{(28 * 24 + 23) * 3_600_000:08X}" + "0001"
    assert keys.next(ms(2024, 3, 1)) == "F" * 20 + "00000000" + "0002"
    assert keys.next(ms(2024, 3, 1) - 10)[20:28] == "00000000"


def test_the_counter_has_two_bytes() -> None:
    keys = UniqueKeys("")
    assert keys.take(0xFFFF, ms(2024, 1, 1)) == (0, 0)
    assert keys.next(ms(2024, 1, 1)).endswith("FFFF")
    assert keys.take(3, ms(2024, 1, 1)) == (0, 0)
