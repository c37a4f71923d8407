"""JSON as fastjson writes it: maps with numbers as keys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.format.untrusted_json import number_map_file, number_maps_file, parse_java_json


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"a":1}', {"a": 1}),
        ('{0:250,1:-3 , -2 :"x"}', {"0": 250, "1": -3, "-2": "x"}),
        ('{"t":{0:"{1:2}",\n\t10:[1,2,{3:4}]}}', {"t": {"0": "{1:2}", "10": [1, 2, {"3": 4}]}}),
        (r'{"a\"{1:":{5:"\\"}}', {'a"{1:': {"5": "\\"}}),
    ],
)
def test_names_that_are_numbers_need_no_quotes(text: str, found: object) -> None:
    assert parse_java_json(text.encode()) == found


@pytest.mark.parametrize("data", [b"", b"{", b"{a:1}", b"\xff", b'{1:2,"x}', b"[" * 100_000])
def test_what_is_not_json_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"not JSON|nested"):
        parse_java_json(data)


_numbers = st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), max_size=4)


@given(st.dictionaries(st.text(max_size=12), _numbers, max_size=4))
def test_tables_come_back_as_they_were_written(maps: dict[str, dict[int, int]]) -> None:
    found = parse_java_json(number_maps_file("offsetTable", maps))
    assert found == {
        "offsetTable": {
            key: {str(number): value for number, value in each.items()}
            for key, each in maps.items()
        }
    }


def test_a_table_has_the_layout_of_a_brokers_file() -> None:
    assert number_maps_file("offsetTable", {"T@g": {0: 250, 1: 3}, "U@g": {0: 1}}) == (
        b'{\n\t"offsetTable":{\n\t\t"T@g":{0:250,1:3\n\t\t},\n\t\t"U@g":{0:1\n\t\t}\n\t}\n}'
    )
    assert number_map_file("offsetTable", {1: 2}) == b'{\n\t"offsetTable":{1:2\n\t}\n}'


def test_texts_that_do_not_end_cost_no_more_than_their_length() -> None:
    """The square of their length would be more steps than the timeout of tests allows."""
    for data in (b'"' + b'\\"' * 2_000_000, b"{" + b" " * 4_000_000, b"," + b"1" * 4_000_000):
        with pytest.raises(ValueError, match="not JSON"):
            parse_java_json(data)
