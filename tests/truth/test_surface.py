"""Each public name, command, request and route has a place in the harness, or a reason why it has none."""

from collections.abc import Iterable, Mapping

import pytest
from starlette.routing import Mount, Route

import reput
import reput.spark
from reput.cli import table
from reput.core.query.message_store import MessageStore
from reput.wings.console.app import create_app
from reput.wings.console.users import Users
from reput.wings.serve.remoting.requests import RequestCode
from tests.truth.answers import PATHS
from tests.truth.sampling import SAMPLE
from tests.truth.surface import API, COMMANDS, REQUESTS, ROUTES, SPARK, STORE_METHODS, Place

pytestmark = pytest.mark.every_case

_NAMES = {path.name for path in PATHS.values()}


def _methods() -> set[str]:
    return {name for name in vars(MessageStore) if not name.startswith("_")}


def _routes() -> set[str]:
    app = create_app({}, users=Users.of_token("secret"))
    return {one.path for one in app.routes if isinstance(one, Route | Mount)}


@pytest.mark.parametrize(
    ("places", "names"),
    [
        (API, reput.__all__),
        (STORE_METHODS, _methods()),
        (COMMANDS, table.COMMANDS),
        (SPARK, reput.spark.__all__),
        (REQUESTS, [code.name for code in RequestCode]),
        (ROUTES, _routes()),
    ],
    ids=["API", "methods", "commands", "Spark", "requests", "routes"],
)
def test_everything_that_could_read_messages_has_a_place(
    places: Mapping[str, Place], names: Iterable[str]
) -> None:
    assert set(names) <= places.keys(), (
        "add a path to tests/truth, or a reason to tests/truth/surface.py"
    )


@pytest.mark.parametrize("places", [API, STORE_METHODS, COMMANDS, SPARK, REQUESTS, ROUTES])
def test_a_place_is_a_path_of_the_harness_or_a_reason(places: Mapping[str, Place]) -> None:
    for name, place in places.items():
        assert place, name
        if isinstance(place, tuple):
            assert set(place) <= _NAMES, name


def test_every_path_belongs_to_something_public() -> None:
    named = {
        path
        for places in (API, STORE_METHODS, COMMANDS, SPARK, REQUESTS, ROUTES)
        for place in places.values()
        if isinstance(place, tuple)
        for path in place
    }
    assert {name for name in _NAMES if name not in named} == {"MessageStore.query limited"}
    assert table.COMMANDS.keys() >= COMMANDS.keys()
    assert len(SAMPLE) > 1
