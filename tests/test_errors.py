"""Errors: every class can be sent from a Spark task to the driver, and has one line."""

import pickle

import pytest

from reput import errors
from reput.errors import CorruptMessageError, FormatError, ReputError, UsageError

CLASSES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, ReputError)
]


def raised(kind: type[ReputError]) -> ReputError:
    if issubclass(kind, CorruptMessageError):
        return kind("commitlog/1024", 91, "no record begins here", 1115, arguments=["on_corrupt"])
    if issubclass(kind, FormatError):
        return kind("commitlog/0", 91, "no record begins here")
    return kind("/store/lock: a broker owns this store", arguments=["output"])


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_arrives_as_it_was_sent(kind: type[ReputError]) -> None:
    sent = raised(kind)
    arrived = pickle.loads(pickle.dumps(sent))
    assert type(arrived) is kind
    assert str(arrived) == str(sent)
    assert vars(arrived) == vars(sent)
    assert "\n" not in str(arrived)


def test_a_format_error_names_file_offset_and_reason() -> None:
    error = FormatError("commitlog/0", 91, "no record begins here")
    assert str(error) == "commitlog/0: offset 91: no record begins here"
    assert (error.path, error.offset, error.reason) == ("commitlog/0", 91, "no record begins here")
    assert isinstance(error, ValueError)


def test_a_corrupt_message_has_its_place_in_the_file_and_in_the_log() -> None:
    error = CorruptMessageError("commitlog/1024", 91, "no record begins here", 1115)
    assert (error.offset, error.physical_offset) == (91, 1115)
    assert str(error) == "commitlog/1024: offset 91: physical offset 1115: no record begins here"
    first = CorruptMessageError("commitlog/0", 91, "no record begins here", 91)
    assert str(first) == "commitlog/0: offset 91: no record begins here"


def test_the_arguments_that_an_error_names_get_other_names_elsewhere() -> None:
    error = UsageError(
        "/x/table/limit: limit 0 and table_limit 1: limit is too small, as is table.",
        arguments=["limit", "table"],
    )
    assert error.worded(str.upper) == (
        "/x/table/limit: LIMIT 0 and table_limit 1: LIMIT is too small, as is TABLE."
    )
