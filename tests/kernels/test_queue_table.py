"""The table of queues: every (name, id) has one number, despite collisions."""

import numpy as np
import pytest

from reput.kernels.queue_table import QUEUES_USED, grown, new_queue_table, queue_number

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")

NAMES = [b"", b"a", b"aa", b"longer than eight", b"longer than eighT", b"\xff", b"a" * 200]
IDS = (-(2**31), -1, 0, 1, 2**31 - 1)


@pytest.mark.parametrize("colliding", [True, False])
def test_queues_keep_their_numbers_while_the_table_grows(colliding: bool) -> None:
    table = new_queue_table(1, 1)
    wanted = [(name, queue_id) for queue_id in IDS for name in NAMES]

    def number_of(name: bytes, queue_id: int) -> int:
        data = np.frombuffer(bytearray(b"xx" + name), np.uint8)
        name_hash = 0 if colliding else hash(name) & 0xFFFFFFFF
        return int(
            queue_number(*table, data, 2, len(name), np.int64(queue_id), np.int64(name_hash))
        )

    for number, (name, queue_id) in enumerate(wanted):
        while table.used[QUEUES_USED] == len(table.queues) or (
            table.used[1] + len(name) > len(table.names)
        ):
            table = grown(table)
        assert number_of(name, queue_id) == number
        assert number_of(name, queue_id) == number, "asked again"
    assert int(table.used[QUEUES_USED]) == len(wanted)
    found = [(table.name(n), int(table.queues[n]["queue_id"])) for n in range(len(wanted))]
    assert found == wanted
    assert [number_of(*queue) for queue in wanted] == list(range(len(wanted)))
