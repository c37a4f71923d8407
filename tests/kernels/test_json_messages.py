"""Plain lines of JSON: no content of a line makes a kernel access memory outside its buffers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reput.kernels.jit import new_rows
from reput.kernels.json_messages import PADDING, SPANS_DTYPE, parse_lines
from reput.kernels.record_layout import PUT_DTYPE
from tests.messages.test_line_columns import damaged, lines


@given(st.lists(lines() | damaged() | st.binary(max_size=30), max_size=4), st.booleans())
def test_no_line_leads_outside(parts: list[bytes], ends: bool) -> None:
    """Parse any bytes within the arrays. With NUMBA_DISABLE_JIT=1, an access outside an array raises IndexError."""
    data = b"\n".join(parts) + b"\n" * ends
    padded = np.frombuffer(data + b"\n" * PADDING, np.uint8)
    most = data.count(b"\n") + 2
    ends_of = [np.zeros(most + 1, np.int64) for _ in range(3)]
    room = [np.zeros(len(padded) + PADDING, np.uint8) for _ in range(4)]
    rows, spans = new_rows(most, PUT_DTYPE), new_rows(most, SPANS_DTYPE)
    start = taken = count = 0
    while start < len(data):
        count, stop, walked = parse_lines(
            padded, start, len(data), rows, spans, ends_of[0], room[0], ends_of[1], room[1],
            ends_of[2], room[2], room[3],
        )  # fmt: skip
        assert start <= stop <= len(data) + 1
        assert count <= walked
        assert (np.diff(ends_of[0][: count + 1]) >= 0).all()
        taken += int(walked)
        start = data.find(b"\n", stop) + 1 or len(data)
    assert taken <= data.count(b"\n") + 1
