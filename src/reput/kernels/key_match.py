"""Match records with many wanted keys: hash keys, select index entries, compare exactly.

The kernels follow two Python functions: `reput.format.commit_log.locate`, which decides whether bytes are a record, and
`reput.core.log.record.LocatedRecord.keyed`, which reads a record's keys. Texts are compared as the Java strings to
which their bytes decode.
"""

from __future__ import annotations

import numpy as np

from reput.format.commit_log import (
    INNER_HEAD,
    MAGIC_POSITION,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    MIN_RECORD_BYTES,
    PHYSICAL_OFFSET_POSITION,
    PROPERTIES_LENGTH_BYTES,
    SYS_FLAG_POSITION,
    SYS_FLAG_ROLLBACK,
    SYS_FLAG_TRANSACTION_MASK,
)
from reput.format.properties import UNIQ_KEY
from reput.kernels.integers import read_i16, read_i32, read_i64, same_bytes
from reput.kernels.java_hash import character_at, hash_before_key, java_hash, positive_hash
from reput.kernels.jit import njit
from reput.kernels.properties_scan import find_index_properties, next_property, next_space
from reput.kernels.record_walk import (
    STOPPED,
    body_bytes_before,
    body_of,
    check_record,
    equals,
    store_timestamp_at,
    topic_length_bytes,
)

# Results of locating a record.
WHOLE = 0
MORE_BYTES = 1  # The record is longer than the bytes read; it has at least `needed` bytes.
NO_RECORD = 2

# Results of comparing a candidate with the record at its offset.
OTHER = 0  # The record has a key with the same hash, but another text.
MATCH = 1  # The record has the wanted key, and states this physical offset.
STALE = 2  # The index entry is stale: its offset has no valid record, or a record that does not get this entry.
STALE_MATCH = 3  # The record has the wanted key, but states another physical offset.

# Where the length of its body is in a message of an inner batch, and the size of its head.
_INNER_BODY_LENGTH_AT, _INNER_HEAD_BYTES = INNER_HEAD.positions["body_bytes"], INNER_HEAD.size
_UNIQ_KEY = np.frombuffer(UNIQ_KEY.encode(), np.uint8)

RECORD_DTYPE = np.dtype(
    [
        ("stated_offset", "i8"),
        ("store_timestamp", "i8"),
        ("needed", "i8"),
        ("topic_at", "i8"),
        ("unique_at", "i8"),
        ("keys_at", "i8"),
        ("topic_bytes", "i8"),
        ("unique_bytes", "i8"),
        ("keys_bytes", "i8"),
        ("properties_at", "i8"),
        ("properties_bytes", "i8"),
        ("status", "i8"),
    ]
)


@njit(cache=True, nogil=True)
def hash_keys(topics, topic_at, keys, key_at, hashes):
    """Compute the hash that an IndexFile has for each topic#key. Write the hashes to `hashes`, int32[n].

    Topic n is topics[topic_at[n]:topic_at[n + 1]], and key n is keys[key_at[n]:key_at[n + 1]].
    """
    for row in range(len(hashes)):
        value = java_hash(topics, topic_at[row], topic_at[row + 1], 0)
        value = java_hash(keys, key_at[row], key_at[row + 1], hash_before_key(value))
        hashes[row] = positive_hash(value)


@njit(cache=True, nogil=True)
def find_wanted(key_hash, wanted, bounds, shift, found):
    """Find the hashes in `key_hash` that are also in `wanted`, and return their number.

    wanted  int32, sorted; hashes with hash >> shift == b are wanted[bounds[b]:bounds[b + 1]]
    found   int64[len(key_hash)], set to the indexes in `key_hash` of the hashes found
    """
    count = 0
    for number in range(len(key_hash)):
        if _is_wanted(key_hash[number], wanted, bounds, shift):
            found[np.uint64(count)] = number
            count += 1
    return count


@njit(cache=True, nogil=True)
def locate_records(data, begins, ends, at_file_end, records):
    """Locate the fields that a look-up needs in records that begin at data[begins[n]] and were read up to ends[n].

    at_file_end  uint8, whether the file ends at ends[n]
    records      RECORD_DTYPE[n], set here; positions are indexes of `data`
    """
    for number in range(len(begins)):
        record = records[number]
        position, end = begins[number], ends[number]
        beyond = NO_RECORD if at_file_end[number] else MORE_BYTES
        record.status = beyond
        record.needed = MIN_RECORD_BYTES
        if position + MIN_RECORD_BYTES > end:
            continue
        total = read_i32(data, position)
        magic = read_i32(data, position + MAGIC_POSITION)
        if (magic != MESSAGE_MAGIC and magic != MESSAGE_MAGIC_V2) or total < MIN_RECORD_BYTES:
            record.status = NO_RECORD
            continue
        sys_flag = read_i32(data, position + SYS_FLAG_POSITION)
        body_at = body_of(position, sys_flag)
        record.needed = body_at + topic_length_bytes(magic) - position
        if position + record.needed > end:
            continue
        # The parts of a record add up to TOTALSIZE, so the body cannot lie beyond it.
        if record.needed + body_bytes_before(data, body_at) > total:
            record.status = NO_RECORD
            continue
        record.needed = total
        stop = position + total
        if stop > end:
            continue
        record.status = NO_RECORD
        status, _, topic_at, topic_bytes, properties_at = check_record(data, position, stop, True)
        if status != STOPPED:
            continue
        unique, unique_stop, keys, keys_stop, _, _, _ = find_index_properties(
            data, properties_at, stop
        )
        # Rolled-back messages have no index entries (IndexService.buildIndex).
        indexed = sys_flag & SYS_FLAG_TRANSACTION_MASK != SYS_FLAG_ROLLBACK
        record.status = WHOLE
        record.stated_offset = read_i64(data, position + PHYSICAL_OFFSET_POSITION)
        record.store_timestamp = read_i64(data, store_timestamp_at(position, sys_flag))
        record.topic_at, record.topic_bytes = topic_at, topic_bytes
        record.unique_at = unique
        record.unique_bytes = unique_stop - unique if indexed else 0
        record.keys_at = keys
        record.keys_bytes = keys_stop - keys if indexed else 0
        record.properties_at = properties_at
        record.properties_bytes = stop - properties_at if indexed else 0


@njit(cache=True, nogil=True)
def match_keys(
    data, records, candidates, record_of, offsets, key_hash, topics, topic_at, keys, key_at, verdicts
):  # fmt: skip
    """Compare candidates with their records. Write the results, such as MATCH, to `verdicts`, uint8[n].

    A candidate is a topic and a key, together with the physical offset of a message that should have both.

    candidates  int64[n], for each candidate: its index in the arrays of offsets, hashes, topics and keys
    record_of   int64[n], for each candidate: the row of its record in `records`
    offsets, key_hash  int64 and int32 per candidate: physical offset of the message, and hash of topic#key
    topics, topic_at, keys, key_at  texts of the topics and of the keys, as in `hash_keys`
    """
    for number in range(len(candidates)):
        record = records[record_of[number]]
        if record.status != WHOLE:
            verdicts[number] = STALE
            continue
        row = candidates[number]
        in_place = record.stated_offset == offsets[row]
        verdict = OTHER if in_place else STALE
        same_topic = _is_same(
            data, record.topic_at, record.topic_at + record.topic_bytes,
            topics, topic_at[row], topic_at[row + 1],
        )  # fmt: skip
        if same_topic and _has_key(data, record, keys, key_at[row], key_at[row + 1]):
            verdict = MATCH if in_place else STALE_MATCH
        elif in_place and not _has_hash(data, record, key_hash[row]):
            verdict = STALE
        verdicts[number] = verdict


@njit(inline="always")
def _is_same(data, start, end, text, text_start, text_end):
    if end - start == text_end - text_start and same_bytes(
        data, start, text, text_start, end - start
    ):
        return True
    return _is_same_decoded(data, start, end, text, text_start, text_end)


@njit(cache=True, nogil=True)
def _is_same_decoded(data, start, end, text, text_start, text_end):
    """Return whether both byte strings decode to the same Java string, with malformed bytes replaced."""
    while start < end and text_start < text_end:
        point, length = character_at(data, start, end)
        other, other_length = character_at(text, text_start, text_end)
        if point != other:
            return False
        # `character_at` returns -1 for every character of four bytes, so their bytes are compared.
        if point < 0 and not same_bytes(data, start, text, text_start, length):
            return False
        start += length
        text_start += other_length
    return start == end and text_start == text_end


@njit(cache=True, nogil=True)
def _has_key(data, record, keys, key_start, key_end):
    """Return whether the text keys[key_start:key_end] is one of the record's KEYS or any of its UNIQ_KEYs."""
    if key_start == key_end:
        return False
    start, limit = record.unique_at, record.unique_at + record.unique_bytes
    if start < limit and _is_same(data, start, limit, keys, key_start, key_end):
        return True
    start, limit = record.keys_at, record.keys_at + record.keys_bytes
    while start < limit:
        space = next_space(data, start, limit)
        if space > start and _is_same(data, start, space, keys, key_start, key_end):
            return True
        start = space + 1
    # A record may have several UNIQ_KEYs (5.x). The last one counts, and was compared above. Compare the earlier ones
    # after all other keys, because few records have several, and they rarely match.
    start, limit = record.properties_at, record.properties_at + record.properties_bytes
    name, name_stop, value_stop = next_property(data, start, limit)
    while name < limit:
        if equals(data, name, name_stop - name, _UNIQ_KEY) and _is_same(
            data, name_stop + 1, value_stop, keys, key_start, key_end
        ):
            return True
        name, name_stop, value_stop = next_property(data, value_stop + 1, limit)
    return False


@njit(inline="always")
def _prefix_hash(data, record):
    """Return the hash of a record's topic and the # after it."""
    stop = record.topic_at + record.topic_bytes
    return hash_before_key(java_hash(data, record.topic_at, stop, 0))


@njit(cache=True, nogil=True)
def _has_hash(data, record, key_hash):
    """Return whether one of the record's index entries has the given hash."""
    prefix = _prefix_hash(data, record)
    start, limit = record.keys_at, record.keys_at + record.keys_bytes
    while start < limit:
        space = next_space(data, start, limit)
        if space > start and positive_hash(java_hash(data, start, space, prefix)) == key_hash:
            return True
        start = space + 1
    # The unique key comes last: it is the longest key, and rarely the wanted one.
    start, limit = record.unique_at, record.unique_at + record.unique_bytes
    return start < limit and positive_hash(java_hash(data, start, limit, prefix)) == key_hash


@njit(cache=True, nogil=True)
def hash_records(data, records, hashes, record_of):
    """Compute the hashes that an index has for the keys of records; return the number of hashes.

    records    RECORD_DTYPE[n], from `locate_records`
    hashes     int32, set to the hashes; needs room for 2 + k // 2 hashes per record whose KEYS have k bytes
    record_of  int64, of the same length, set to the row in `records` to which each hash belongs
    """
    count = 0
    for row in range(len(records)):
        record = records[row]
        if record.status != WHOLE:
            continue
        prefix = _prefix_hash(data, record)
        start, limit = record.unique_at, record.unique_at + record.unique_bytes
        if start < limit:
            hashes[count] = positive_hash(java_hash(data, start, limit, prefix))
            record_of[count] = row
            count += 1
        start, limit = record.keys_at, record.keys_at + record.keys_bytes
        while start < limit:
            space = next_space(data, start, limit)
            if space > start:
                hashes[count] = positive_hash(java_hash(data, start, space, prefix))
                record_of[count] = row
                count += 1
            start = space + 1
    return count


@njit(cache=True, nogil=True)
def hash_own_ids(data, records, hashes, record_of):
    """Write the hash of each UNIQ_KEY that a later UNIQ_KEY of the record replaces. Replaced keys are not in the index.

    records    RECORD_DTYPE[n], from `locate_records`
    hashes     int32, set to the hashes
    record_of  int64, of the same length, set to the row in `records` to which each hash belongs

    Returns the number of hashes, and the number of finished rows, which is less than n if not all hashes had room.
    """
    count = 0
    for row in range(len(records)):
        record = records[row]
        if record.status != WHOLE:
            continue
        first = count
        prefix = _prefix_hash(data, record)
        start, limit = record.properties_at, record.properties_at + record.properties_bytes
        name, name_stop, value_stop = next_property(data, start, limit)
        while name < limit:
            # Only UNIQ_KEYs that a later UNIQ_KEY replaces are wanted. So skip the last UNIQ_KEY, at `unique_at`.
            is_unique = equals(data, name, name_stop - name, _UNIQ_KEY)
            if is_unique and name_stop + 1 < record.unique_at:
                if count == len(hashes):
                    return first, row
                value = positive_hash(java_hash(data, name_stop + 1, value_stop, prefix))
                # Another key of the record may have the same hash. Write each hash to `hashes` once per record, and
                # only if the index has no entry with this hash for the record.
                is_new = not _has_hash(data, record, value)
                for other in range(first, count):
                    is_new &= hashes[other] != value
                if is_new:
                    hashes[count] = value
                    record_of[count] = row
                    count += 1
            name, name_stop, value_stop = next_property(data, value_stop + 1, limit)
    return count, len(records)


@njit(cache=True, nogil=True)
def batch_has_wanted(data, topic, wanted, bounds, shift):
    """Return whether a message of an inner batch has a hash in `wanted`; True if the lengths are inconsistent.

    data    uint8, the messages one after the other (`reput.core.query.inner_batch`)
    wanted  int32, sorted; with bounds and shift as in `find_wanted`
    """
    prefix = hash_before_key(java_hash(topic, 0, len(topic), 0))
    position, end = 0, len(data)
    while position < end:
        # The properties begin here if the body is empty.
        least = position + _INNER_HEAD_BYTES + PROPERTIES_LENGTH_BYTES
        if least > end:
            return True
        properties_at = least + read_i32(data, position + _INNER_BODY_LENGTH_AT)
        if properties_at < least or properties_at > end:
            return True
        stop = properties_at + read_i16(data, properties_at - PROPERTIES_LENGTH_BYTES)
        if stop < properties_at or stop > end:
            return True
        start, limit, keys, keys_stop, _, _, _ = find_index_properties(data, properties_at, stop)
        if start < limit:
            value = positive_hash(java_hash(data, start, limit, prefix))
            if _is_wanted(value, wanted, bounds, shift):
                return True
        start, limit = keys, keys_stop
        while start < limit:
            space = next_space(data, start, limit)
            if space > start:
                value = positive_hash(java_hash(data, start, space, prefix))
                if _is_wanted(value, wanted, bounds, shift):
                    return True
            start = space + 1
        position = stop
    return False


@njit(inline="always")
def _is_wanted(value, wanted, bounds, shift):
    bucket = np.uint64(np.int64(value) >> shift)
    position, stop = bounds[bucket], bounds[bucket + np.uint64(1)]
    while position < stop and wanted[np.uint64(position)] < value:
        position += 1
    return position < stop and wanted[np.uint64(position)] == value
