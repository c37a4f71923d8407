"""Read and verify records of a queue from a log file, and concatenate their bytes, for a pull.

The checks are those of `reput.core.query.pull_records`. The kernel stops at the first entry or record that fails a
check. Its caller decides how to continue.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from reput.format.commit_log import (
    HEAD,
    MAGIC_POSITION,
    MESSAGE_MAGIC,
    MIN_RECORD_BYTES,
    PHYSICAL_OFFSET_POSITION,
    PROPERTIES_LENGTH_BYTES,
    QUEUE_ID_POSITION,
    QUEUE_OFFSET_POSITION,
    SYS_FLAG_COMMIT,
    SYS_FLAG_HOSTS_V6,
    SYS_FLAG_POSITION,
    SYS_FLAG_TRANSACTION_MASK,
)
from reput.format.consume_queue import ENTRY, ENTRY_BYTES
from reput.format.consume_queue_ext import LAST_ADDRESS
from reput.kernels.bytes_out import copy_bytes
from reput.kernels.integers import Bytes, read_i16, read_i32, read_i64, same_bytes
from reput.kernels.jit import njit
from reput.kernels.llvm import (
    INTERPRETED,
    cgutils,
    impl_ret_untracked,
    intrinsic,
    ir,
    make_array,
    types,
)
from reput.kernels.properties_scan import find_index_properties
from reput.kernels.record_walk import body_bytes_before

_SIZE_POSITION, _TAGS_CODE_POSITION = ENTRY.positions["size"], ENTRY.positions["tags_code"]
_HEAD_BYTES = HEAD.size
# Copying a gap of this size costs as much as another system call.
_MOST_GAP_BYTES = 8 << 10


def _interpreted_pread(file: int, data: Bytes, at: int, length: int, position: int) -> int:
    first, last = int(at), int(at + length)
    if first < 0 or last > len(data):
        raise IndexError(f"bytes {first} to {last} are outside of {len(data)} bytes")
    try:
        return os.preadv(int(file), [data[first:last].data], int(position))
    except OSError:
        return -1


@intrinsic
def _compiled_pread(
    typing_context: Any, file: Any, data: Any, at: Any, length: Any, position: Any
) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word, pointer = ir.IntType(64), ir.IntType(8).as_pointer()
        array = make_array(signature.args[1])(context, builder, args[1])
        place = builder.bitcast(builder.gep(array.data, [args[2]]), pointer)
        kind = ir.FunctionType(word, [ir.IntType(32), pointer, word, word])
        function = cgutils.get_or_insert_function(builder.module, kind, "pread")
        descriptor = builder.trunc(args[0], ir.IntType(32))
        count = builder.call(function, [descriptor, place, args[3], args[4]])
        return impl_ret_untracked(context, builder, types.int64, count)

    return types.int64(types.int64, data, types.int64, types.int64, types.int64), generate


# pread(file, data, at, length, position): read from byte `position` of the open file `file` into data[at:at + length].
# It returns the number of bytes read: fewer at the file's end, -1 for an error. The caller has checked that the bytes
# lie inside `data`.
pread = _interpreted_pread if INTERPRETED else _compiled_pread


@njit(cache=True, nogil=True)
def read_records(
    file, begin, end, entries, entry, queue_id, queue_offset, topic, codes, tags, tag_at,
    most_records, out, at, work,
):  # fmt: skip
    """Read the records of entries into `out`.

    Stop at the first record that is not in this log file, fails a check, or does not fit into `out`.

    file            descriptor of the log file, which has the physical offsets from `begin` to `end`
    entries, entry  uint8, entries as they are stored; index of the first entry to read
    queue_id, queue_offset  the queue; queue offset of entry 0
    topic           uint8, the topic with its length before it
    codes           int64, the tags codes of wanted messages; empty for all messages
    tags, tag_at    uint8, int64[n + 1]: wanted tag i is tags[tag_at[i]:tag_at[i + 1]]
    most_records    limit of the number of records
    out, at         uint8, whose length is the limit of bytes; position for the first record
    work            uint8, a buffer: wanted records that are close together are read by one system call, with the bytes
                    between them

    Returns (entry, at, records): the first entry that is not done, the end of the records, and their number.
    """
    last = len(entries) // ENTRY_BYTES
    records = 0
    while entry < last and records < most_records:
        offset, size = _place(entries, entry, begin, end)
        if size == 0:
            break
        # An entry with an extension unit has an address in place of its tags code, so the caller must read the unit.
        if not _may_match(entries, entry, codes):
            if _is_address(entries, entry):
                break
            entry += 1
            continue
        # Collect a run of records that one system call can read.
        stop, total, joined, wanted = offset + size, size, True, 1
        following = entry + 1
        while following < last and records + wanted < most_records:
            next_offset, next_size = _place(entries, following, begin, end)
            if next_size == 0 or (len(codes) > 0 and _is_address(entries, following)):
                break
            if _may_match(entries, following, codes):
                gap = next_offset - stop
                if not 0 <= gap <= _MOST_GAP_BYTES or at + total + next_size > len(out):
                    break
                is_joined = joined and gap == 0
                if not is_joined and next_offset + next_size - offset > len(work):
                    break
                joined = is_joined
                stop = next_offset + next_size
                total += next_size
                wanted += 1
            following += 1
        if at + total > len(out):
            break
        # Adjacent records are read directly into `out`. Records with gaps are read into `work`, and then copied.
        source, base = (out, at) if joined else (work, 0)
        # If fewer bytes were read, the file was truncated or deleted. The caller finds out which.
        if pread(file, source, base, stop - offset, offset - begin) != stop - offset:
            break
        while entry < following:
            if _may_match(entries, entry, codes):
                place, size = _place(entries, entry, begin, end)
                position = base + place - offset
                if not _is_right(
                    source, position, size, place, queue_id, queue_offset + entry, topic, codes,
                    tags, tag_at,
                ):  # fmt: skip
                    return entry, at, records
                if not joined:
                    copy_bytes(out, at, work, position, size)
                at += size
                records += 1
            entry += 1
    return entry, at, records


@njit(inline="always")
def _place(entries, entry, begin, end):
    """Return the physical offset and the size that an entry states; a size of 0 if no such record fits in the file."""
    position = entry * ENTRY_BYTES
    offset, size = read_i64(entries, position), read_i32(entries, position + _SIZE_POSITION)
    if size < MIN_RECORD_BYTES or not begin <= offset <= end - size:
        size = np.int64(0)
    return offset, size


@njit(inline="always")
def _may_match(entries, entry, codes):
    if len(codes) == 0:
        return True
    found = read_i64(entries, entry * ENTRY_BYTES + _TAGS_CODE_POSITION)
    is_found = False
    for code in codes:
        is_found |= code == found
    return is_found


@njit(inline="always")
def _is_address(entries, entry):
    return read_i64(entries, entry * ENTRY_BYTES + _TAGS_CODE_POSITION) <= LAST_ADDRESS


@njit(inline="always")
def _is_right(
    data, position, size, offset, queue_id, queue_offset, topic, codes, tags, tag_at
):  # fmt: skip
    """Return whether a record states this place and size, and has a wanted tag.

    All bytes of the record are in `data`.
    """
    if (
        read_i32(data, position) != size
        or read_i32(data, position + MAGIC_POSITION) != MESSAGE_MAGIC
        or read_i32(data, position + QUEUE_ID_POSITION) != queue_id
        or read_i64(data, position + QUEUE_OFFSET_POSITION) != queue_offset
        or read_i64(data, position + PHYSICAL_OFFSET_POSITION) != offset
    ):
        return False
    sys_flag = read_i32(data, position + SYS_FLAG_POSITION)
    transaction = sys_flag & SYS_FLAG_TRANSACTION_MASK
    # The caller handles rare records: those with IPv6 hosts, uncommitted transactions, or topics of more than 127
    # bytes. Records with such a topic have magic V2, which the test above excludes.
    if sys_flag & SYS_FLAG_HOSTS_V6 != 0 or (transaction != 0 and transaction != SYS_FLAG_COMMIT):
        return False
    at = _HEAD_BYTES + body_bytes_before(data, position + _HEAD_BYTES)
    if at + len(topic) + PROPERTIES_LENGTH_BYTES > size:
        return False
    if not same_bytes(data, position + at, topic, 0, len(topic)):
        return False
    at += len(topic)
    start, stop = position + at + PROPERTIES_LENGTH_BYTES, position + size
    # Unlike other readers, refuse a negative length: the caller reads such a record.
    if start + read_i16(data, position + at) != stop:
        return False
    return len(codes) == 0 or _has_tag(data, start, stop, tags, tag_at)


@njit(inline="always")
def _has_tag(data, start, stop, tags, tag_at):
    _, _, _, _, first, last, _ = find_index_properties(data, start, stop)
    for tag in range(len(tag_at) - 1):
        length = tag_at[tag + 1] - tag_at[tag]
        if length == last - first and same_bytes(data, first, tags, tag_at[tag], length):
            return True
    return False
