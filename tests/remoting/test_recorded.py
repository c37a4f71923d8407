"""Each recorded request of stock tools and clients is answered as by the broker, except for listed departures."""

import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from tests.remoting.client import serving
from tests.remoting.recorded import (
    VERSIONS,
    WIRE,
    Player,
    Recording,
    lacking,
    needed_fields,
    recorded_messages,
    recordings,
)
from tests.small import SMALL

pytestmark = pytest.mark.skipif(not WIRE.exists(), reason="the recordings are not here")
PAGE = Path(__file__).parents[2] / "docs" / "request-codes.md"
_ROW = re.compile(r"^\| (\d+) \w+ \| ([^|]+) \| ([^|]+) \| ([^|]+) \|", re.MULTILINE)
_OTHER_STATE = {
    (12, "code 22, not 0"),  # the trace message of the recorded client is not here
    (105, "code 0, not 17"),  # this server has the topic already
    (28, "body table.commitLogDiskRatio_/STORE/store/commitlog"),  # the name has the store's path
    (222, "code 0, not 1"),  # here the group has committed offsets
    (222, "code 26, not 0"),  # the group is missing here: another recording created it
    (315, "code 1, not 0"),  # here the groups pull no messages
}
"""Departures that only reflect another state: some recordings were made with a separate broker."""
_FROM_BROKERS = ("broker_start", "broker_stop")
"""Recordings that are not replayed: they have requests of a broker to its name server."""


def documented(version: str) -> set[tuple[int, str]]:
    """Return the departures that the documentation lists: code, and missing parts of the answer."""
    text = PAGE.read_text().partition("## Departures")[2]
    return {
        (int(code), lack.strip())
        for code, versions, lacks, _ in _ROW.findall(text)
        if version in versions
        for lack in lacks.split(";")
    }


def compare_stored(player: Player, found: list[Recording]) -> int:
    """Compare the stored properties of messages with the broker's, byte for byte."""
    compared = 0
    for recorded in recorded_messages(found):
        stored = player.stored(recorded)
        if stored is not None:
            # The original message's id contains its physical offset, which differs here.
            if recorded.topic.startswith("%RETRY%"):
                assert list(stored.properties) == list(recorded.properties)
                names = {"ORIGIN_MESSAGE_ID"}
                assert {**stored.properties, **dict.fromkeys(names)} == {
                    **recorded.properties, **dict.fromkeys(names)
                }  # fmt: skip
            else:
                assert stored.properties_bytes == recorded.properties_bytes
            compared += 1
    return compared


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_requests_are_answered_as_by_the_broker(version: str, tmp_path: Path) -> None:
    needed = needed_fields(version)
    departures: dict[tuple[int, str], list[str]] = defaultdict(list)
    config = replace(SMALL, store_version=version[:3])
    count = compared = 0
    for is_extra in (False, True):
        found: list[Recording] = [
            one
            for one in recordings(version)
            if one.is_extra == is_extra and one.name not in _FROM_BROKERS
        ]
        path = tmp_path / str(is_extra) / "broker-a"
        with (
            serving(
                path, sends=True, cluster="DefaultCluster", config=config, has_sql_filters=is_extra
            ) as running,
            Player(running.address, version, found) as player,
        ):
            for recording in found:
                for request, answer in player.play(recording):
                    count += 1
                    for lack in lacking(request, answer, needed.get(request.code, set())):
                        departures[request.code, lack].append(f"{recording.name}: {answer}")
            compared += compare_stored(player, found)
    assert count > 900
    assert compared > 30
    listed = documented(version)
    found_here = {key: where[:3] for key, where in departures.items() if key not in _OTHER_STATE}
    assert not {key: where for key, where in found_here.items() if key not in listed}
    assert listed == found_here.keys()
