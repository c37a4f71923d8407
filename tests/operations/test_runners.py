"""The runner of a command's tasks depends on its options, the size of the log and installed extras."""

from importlib.machinery import ModuleSpec

import pytest

from reput.base.tasks import Runner, SerialRunner
from reput.base.tasks.processes import ProcessRunner
from reput.cli.main import in_options
from reput.engine.stores import runners
from reput.engine.stores.runners import INSTALL_SPARK, SMALL_BYTES, Chosen
from reput.errors import UsageError
from reput.io.staged import AnchoredRunner

NEITHER = Chosen()


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(name: str) -> ModuleSpec | None:
        assert name == "pyspark"
        return None

    monkeypatch.setattr(runners, "find_spec", found)


def inner(runner: Runner) -> Runner:
    """Return the runner itself, without an AnchoredRunner around it."""
    return runner._runner if isinstance(runner, AnchoredRunner) else runner


def test_a_small_store_needs_nobody_else() -> None:
    with runners.opened_runner(NEITHER, SMALL_BYTES - 1, lambda: None) as runner:
        assert isinstance(inner(runner), SerialRunner)


def test_a_large_store_and_whoever_asks_for_it_get_spark() -> None:
    assert NEITHER.is_spark(SMALL_BYTES)
    assert not NEITHER.is_spark(SMALL_BYTES - 1)
    assert Chosen("spark", None).is_spark(0)
    assert Chosen("auto", "local[2]").is_spark(0)
    assert not Chosen("processes").is_spark(SMALL_BYTES)
    assert not Chosen("serial").is_spark(SMALL_BYTES)


@pytest.mark.usefixtures("without_spark")
def test_without_spark_processes_run_large_stores() -> None:
    with runners.opened_runner(Chosen(), SMALL_BYTES, lambda: None) as runner:
        assert isinstance(inner(runner), ProcessRunner)


@pytest.mark.usefixtures("without_spark")
@pytest.mark.parametrize(
    ("chosen", "option"),
    [(Chosen("spark"), "--runner spark"), (Chosen("auto", "yarn"), "--master yarn")],
)
def test_spark_that_is_not_installed_is_one_line(chosen: Chosen, option: str) -> None:
    with pytest.raises(UsageError) as raised:
        chosen.is_spark(0)
    assert in_options(raised.value) == f"{option}: PySpark is not installed: {INSTALL_SPARK}"


def test_a_master_is_only_for_spark() -> None:
    with pytest.raises(UsageError, match=r"master local\[2\]: needs runner spark"):
        Chosen("processes", "local[2]").is_spark(0)


@pytest.mark.parametrize("runner", ["dask", "", 3, None])
def test_an_unknown_runner_is_refused_with_the_known_ones(runner: object) -> None:
    with pytest.raises(UsageError, match="runner"):
        Chosen.of(runner).is_spark(0)


def test_what_fails_in_the_background_is_raised_where_it_is_waited_for() -> None:
    begun = runners._begun(lambda: None)
    assert begun() is None
    with pytest.raises(ZeroDivisionError):
        runners._begun(lambda: print(1 // 0))()
