"""Define Hypothesis strategies: near-UTF-8 bytes, texts, hosts, whole messages. Needs `reput[testing]`."""

from __future__ import annotations

from reput.errors import MissingExtraError

try:
    from hypothesis import strategies as st
except ModuleNotFoundError:
    raise MissingExtraError(
        "reput.testing.strategies needs Hypothesis: pip install 'reput[testing]'"
    ) from None

from reput.format.commit_log import MESSAGE_MAGIC, MESSAGE_MAGIC_V2, MessageExt, body_crc
from reput.format.host import Host
from reput.format.java_string import encode_utf8

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)

# Bytes at which the rules of UTF-8 change. Among random sequences of these bytes, valid, truncated and forbidden
# characters are all frequent.
_TURNING_POINTS = (
    0x00, 0x01, 0x02, 0x20, 0x2C, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2,
    0xDF, 0xE0, 0xE4, 0xED, 0xEF, 0xF0, 0xF3, 0xF4, 0xF5, 0xFF,
)  # fmt: skip
nearly_utf8 = st.one_of(
    st.lists(st.sampled_from(_TURNING_POINTS), max_size=24).map(bytes),
    st.text(max_size=12).map(lambda text: text.encode()),
    st.binary(max_size=24),
)
"""Bytes that are valid or nearly valid UTF-8."""
java_text = st.text(st.characters(codec=None), max_size=24)
"""Any string that Java allows, including lone surrogates."""

v4_hosts = st.builds(Host, st.ip_addresses(v=4).map(str), int32)
v6_hosts = st.builds(Host, st.ip_addresses(v=6).map(str), int32)
hosts = v4_hosts | v6_hosts

property_text = st.text(st.sampled_from("\x01\x02 abK,é😀"), max_size=20)
property_names = st.text(
    st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1, max_size=6
)
property_values = st.text(
    st.characters(exclude_characters="\x02", codec="utf-8"), min_size=1, max_size=6
)


@st.composite
def messages(draw: st.DrawFn) -> MessageExt:
    """Draw messages that `reput.format.commit_log.decode` could return: sizes, CRC and host flags are consistent."""
    magic = draw(st.sampled_from((MESSAGE_MAGIC, MESSAGE_MAGIC_V2)))
    most = 127 if magic == MESSAGE_MAGIC else 300
    topic = draw(st.text(max_size=most).filter(lambda text: len(encode_utf8(text)) <= most))
    body, properties = draw(st.binary(max_size=64)), draw(st.binary(max_size=64))
    born_host, store_host = draw(hosts), draw(hosts)
    sys_flag = draw(int32) & ~48
    sys_flag |= 16 * (":" in born_host.address) | 32 * (":" in store_host.address)
    length_bytes = 1 if magic == MESSAGE_MAGIC else 2
    hosts_bytes = sum(20 if ":" in host.address else 8 for host in (born_host, store_host))
    return MessageExt(
        topic=topic,
        queue_id=draw(int32),
        queue_offset=draw(int64),
        physical_offset=draw(int64),
        size_bytes=74 + hosts_bytes + length_bytes + len(encode_utf8(topic) + body + properties),
        flag=draw(int32),
        sys_flag=sys_flag,
        body_crc=body_crc(body),
        born_timestamp=draw(int64),
        born_host=born_host,
        store_timestamp=draw(int64),
        store_host=store_host,
        reconsume_times=draw(int32),
        prepared_transaction_offset=draw(int64),
        body=body,
        properties_bytes=properties,
        magic=magic,
    )
