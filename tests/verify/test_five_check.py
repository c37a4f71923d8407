"""The check of healthy stores of RocketMQ 5.3.3: whatever a broker does on its own is no finding."""

from collections.abc import Callable

import pytest

from reput.config import StoreConfig
from tests.golden.stores import FIVE_NOT_SHIPPED, FIVE_SHIPPED, GoldenStore
from tests.verify.checking import checked

Golden = Callable[[str], GoldenStore]
STORES = [*FIVE_SHIPPED, *(pytest.param(name, marks=pytest.mark.slow) for name in FIVE_NOT_SHIPPED)]


@pytest.mark.every_case
@pytest.mark.parametrize("name", STORES)
def test_a_valid_store_has_no_findings(golden: Golden, name: str) -> None:
    store = golden(name)
    config = StoreConfig.from_broker_settings(store.config)
    assert checked(store.path, config) == []
    assert checked(store.path, config, quick=True) == []
    assert checked(store.path) == []
