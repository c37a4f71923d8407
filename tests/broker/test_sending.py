"""Properties in the order in which a broker stores them: that of a Java HashMap, with its history of puts."""

from dataclasses import replace
from pathlib import Path

import pytest

from reput import open_store
from reput.base.config import StoreConfig
from reput.format.properties import decode_properties
from reput.wings.serve.broker.broker import ServedBroker
from reput.wings.serve.broker.sending import Sent, encoded
from tests.small import SMALL

SENT = ["KEYS", "TRAN_MSG", "UNIQ_KEY", "WAIT", "PGROUP", "TAGS"]
VALUES = {"TRAN_MSG": "true", "WAIT": "true", "DELAY": "3"}


def stored(tmp_path: Path, names: list[str], config: StoreConfig = SMALL) -> list[str]:
    """Return the names of the properties that a broker stores for a message with properties of these names."""
    with open_store(tmp_path / "s", mode="rw", config=config) as store:
        broker = ServedBroker("s", store)
        assert broker.written is not None
        text = "\x02".join(f"{name}\x01{VALUES.get(name, name.lower())}" for name in names)
        message, _ = broker.written.sending.message(Sent("T", b"x", properties=text))
        assert isinstance(message.properties, bytes)
        return list(decode_properties(message.properties.decode()))


def test_a_half_message_has_wait_after_the_group(tmp_path: Path) -> None:
    """As a broker of 4.9.3 stored it: WAIT, PGROUP and DELAY share a bucket, and WAIT was put back last."""
    assert stored(tmp_path, SENT) == [
        "REAL_TOPIC", "KEYS", "TRAN_MSG", "UNIQ_KEY", "CLUSTER", "PGROUP", "WAIT", "TAGS", "REAL_QID",
    ]  # fmt: skip


def test_a_delayed_message_has_wait_after_the_delay(tmp_path: Path) -> None:
    names = stored(tmp_path, ["WAIT", "DELAY"])
    assert names.index("DELAY") < names.index("WAIT")


def test_a_property_that_is_not_stored_counts_for_the_size_of_the_map(tmp_path: Path) -> None:
    """With WAIT and CLUSTER the map has 13 properties, and thus 32 buckets."""
    names = [
        "alpha",
        "beta",
        "gamma",
        "delta",
        "epsilon",
        "zeta",
        "eta",
        "theta",
        "iota",
        "kappa",
        "lambda",
    ]
    whole = dict.fromkeys([*names, "CLUSTER", "WAIT"], "v")
    expected = [name for name in decode_properties(encoded(whole).decode()) if name != "WAIT"]
    assert expected != list(
        decode_properties(encoded(dict.fromkeys([*names, "CLUSTER"], "v")).decode())
    )
    assert stored(tmp_path, [*names[:5], "WAIT", *names[5:]]) == expected


@pytest.mark.parametrize("names", [["KEYS"], ["KEYS", "DELAY"]])
def test_an_id_that_the_broker_adds_comes_before_the_cluster(
    tmp_path: Path, names: list[str]
) -> None:
    """In 5.x. The two share a bucket."""
    order = stored(tmp_path, names, replace(SMALL, store_version="5.3"))
    assert order.index("UNIQ_KEY") + 1 == order.index("CLUSTER")
