"""Properties, and the keys and tags parsed from them."""

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reput.base.config import StoreConfig
from reput.format.properties import decode_properties, encode_properties, index_keys, tags_code
from reput.testing.strategies import int64, property_names, property_text, property_values
from tests.golden.stores import SHIPPED, GoldenStore
from tests.oracle.java_text import hash_code
from tests.oracle.records import parse_properties

Golden = Callable[[str], GoldenStore]
DELAYS_MS = StoreConfig().delay_table_ms()
SCHEDULED = "SCHEDULE_TOPIC_XXXX"


@given(property_text)
@example("\x01\x02a\x01\x02\x01a\x02a\x01b\x02a\x01c\x01d\x02a\x02b\x01c")
def test_properties_are_parsed_as_the_oracle_does(text: str) -> None:
    properties = decode_properties(text)
    assert properties == parse_properties(text)
    assert list(properties) == list(parse_properties(text))


@given(st.dictionaries(property_names, property_values, max_size=5))
def test_what_was_joined_is_taken_apart(properties: dict[str, str]) -> None:
    text = encode_properties(properties)
    assert decode_properties(text) == properties
    assert list(decode_properties(text)) == list(properties)
    assert not text.endswith("\x02")


@pytest.mark.parametrize(
    ("properties", "keys"),
    [
        ({}, []),
        ({"KEYS": " a  b "}, ["a", "b"]),
        ({"KEYS": "   "}, []),
        ({"KEYS": "a a", "UNIQ_KEY": "a"}, ["a", "a", "a"]),
        ({"UNIQ_KEY": "u v", "KEYS": "b\ta\n"}, ["u v", "b\ta\n"]),
        ({"keys": "a", "UNIQ_KEY": ""}, []),
    ],
)
def test_index_keys(properties: dict[str, str], keys: list[str]) -> None:
    assert index_keys(properties) == keys


@given(st.text(max_size=8), st.text(max_size=8), int64)
def test_the_tags_code_is_the_hash_of_the_tags(topic: str, tags: str, timestamp: int) -> None:
    assert tags_code(topic, {"TAGS": tags}, timestamp, DELAYS_MS) == hash_code(tags)
    assert tags_code(topic, {}, timestamp, DELAYS_MS) == 0


@pytest.mark.parametrize(
    ("topic", "delay", "timestamp", "code"),
    [
        (SCHEDULED, "1", 1000, 2000),
        (SCHEDULED, "+18", 1000, 7_201_000),
        (SCHEDULED, "19", 1000, 7_201_000),
        (SCHEDULED, "2147483647", 1000, 7_201_000),
        (SCHEDULED, "٣", 0, 10_000),
        (SCHEDULED, "0", 1000, hash_code("t")),
        (SCHEDULED, "-2147483648", 1000, hash_code("t")),
        (SCHEDULED, "1", 2**63 - 1, -(2**63) + 999),
        ("other", "1", 1000, hash_code("t")),
        ("other", "soon", 1000, hash_code("t")),
    ],
)
def test_a_delayed_message_has_its_time_as_tags_code(
    topic: str, delay: str, timestamp: int, code: int
) -> None:
    assert tags_code(topic, {"DELAY": delay, "TAGS": "t"}, timestamp, DELAYS_MS) == code


@pytest.mark.parametrize("delay", ["soon", "1s", " 1", "2147483648", "1_0", "-", "𝟗"])
def test_a_delay_that_is_no_number_cannot_be_read(delay: str) -> None:
    with pytest.raises(ValueError, match="is not an int32"):
        tags_code(SCHEDULED, {"DELAY": delay}, 0, DELAYS_MS)


@pytest.mark.parametrize("name", SHIPPED)
def test_tags_codes_and_keys_are_the_brokers(golden: Golden, name: str) -> None:
    for row in golden(name).messages:
        properties = decode_properties(row.properties)
        code = tags_code(row.topic, properties, row.store_timestamp, DELAYS_MS)
        assert code == row.tags_code
        assert properties.get("UNIQ_KEY") == row.uniq_key
        assert properties.get("KEYS", None if row.properties else "") == row.keys
