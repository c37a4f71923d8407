"""Importing a submodule of `reput.spark` does not replace the public function of the same name."""

from importlib import import_module
from inspect import isfunction

import pytest

import reput.spark

_MODULES = {
    "coverage_of": "bulk_lookup",
    "explain": "explanation",
    "export": "reput.spark.on_spark",
    "follow": "reput.spark.on_spark",
    "lookup": "bulk_lookup",
    "rebuild": "reput.spark.on_spark",
    "register": "source",
}


@pytest.mark.parametrize("name", sorted(_MODULES))
def test_a_public_name_is_a_function_even_when_its_module_is_imported(name: str) -> None:
    home = _MODULES[name]
    module = import_module(home if "." in home else f"reput.spark.{home}")
    found = getattr(reput.spark, name)
    assert isfunction(found)
    assert found is getattr(module, name)
    assert name in dir(reput.spark)


def test_these_are_all() -> None:
    assert sorted(_MODULES) == reput.spark.__all__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = reput.spark.nothing  # type: ignore[attr-defined]
