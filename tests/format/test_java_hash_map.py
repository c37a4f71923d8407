"""The order of a broker's properties."""

from collections.abc import Callable

from reput.format.java_string import hash_map_order
from reput.format.properties import decode_properties
from tests.golden.stores import GoldenStore


def test_what_a_client_sets_comes_in_the_brokers_order() -> None:
    names = ("TAGS", "WAIT", "UNIQ_KEY", "KEYS")
    assert hash_map_order(names) == ("KEYS", "UNIQ_KEY", "WAIT", "TAGS")


def test_names_of_one_bucket_stay_in_order_of_insertion() -> None:
    assert hash_map_order(("Aa", "BB")) == ("Aa", "BB")
    assert hash_map_order(("BB", "Aa")) == ("BB", "Aa")


def test_more_than_twelve_names_take_a_larger_table() -> None:
    twelve = tuple(chr(65 + n) for n in range(12))
    assert hash_map_order((*twelve[1:], "Q")) == ("Q", *twelve[1:])  # Q is 81, in bucket 1 of 16
    assert hash_map_order((*twelve, "Q")) == (*twelve, "Q")


def test_the_properties_of_golden_stores_are_in_this_order(
    golden: Callable[[str], GoldenStore],
) -> None:
    for row in golden("orders").messages:
        names = tuple(decode_properties(row.properties))
        # the broker adds CLUSTER last
        put_in = sorted(names, key=lambda name: (name == "CLUSTER", name))
        assert hash_map_order(tuple(put_in)) == names
