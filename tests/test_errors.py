"""Errors: every class survives the way from a Spark task to the driver, and says one line."""

import pickle

import pytest

from reput import errors
from reput.errors import FormatError, ReputError

CLASSES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, ReputError)
]


def raised(kind: type[ReputError]) -> ReputError:
    if issubclass(kind, FormatError):
        return kind("commitlog/0", 91, "no record begins here")
    return kind("/store/lock: a broker owns this store")


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
