"""List the log files of an archive, alone or as the beginning of a store's log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from reput.core import CommitLogFile, KnownFile, ReplacedIds, TimedPiece
from reput.errors import UsageError
from reput.format.archive import LogFile
from reput.format.commit_log import MessageExt, RecordError, decode_located, locate
from reput.format.seekable_zstd import FRAME_BYTES
from reput.io import ArchiveStorage, JoinedStorage, Storage

_EVER = (1 << 63) - 1
# A comparison of a store with its archive reads at most _COMPARED_FILES files, and at most _COMPARED_BYTES of each, so
# that it takes few requests.
_COMPARED_BYTES = 256 << 10
_COMPARED_FILES = 8


def archived_files(storage: Storage) -> tuple[CommitLogFile, ...]:
    """Return the log files of an archive. The storage's `is_archive` must be true."""
    if not isinstance(storage, ArchiveStorage):
        raise TypeError(f"{storage!r} is not an archive")
    return tuple(_log_file(storage, file) for file in storage.archive.manifest.log)


def archived_batch_topics(storage: Storage) -> frozenset[str]:
    """Return the topics that had batch queues when they were archived.

    The storage must be an archive, or a combination of a store and its archive.
    """
    archive = storage.older if isinstance(storage, JoinedStorage) else storage
    if not isinstance(archive, ArchiveStorage):
        raise TypeError(f"{storage!r} is not an archive")
    return frozenset(archive.archive.manifest.batch_topics)


def _log_file(storage: ArchiveStorage, file: LogFile) -> CommitLogFile:
    path, identity = f"{storage.root}/{file.path}", int(file.sha256[:15], 16)
    # A file without messages gets an empty range of times, which lies outside every time window.
    least, most = (
        (_EVER, -_EVER - 1) if file.times is None else (file.times.least, file.times.greatest)
    )
    # A stamp shows whether a file has changed since it was scanned. Sealed files never change, so their stamp is made
    # of the digest. The last file may still grow, so it has no stamp.
    stamp = (file.begin, identity, file.size) if file.is_sealed else ()
    piece = TimedPiece(file.begin, file.messages_end, least, most, -1)
    # If a record has several UNIQ_KEYs, only the last one is in the index. The manifest states only whether the file
    # has such records. If it has, the other UNIQ_KEYs are unknown here (None), and only a scan finds them.
    ids = None if file.has_replaced_ids else ReplacedIds()
    known = KnownFile(piece.start, piece.stop, (piece,), ids, stamp=stamp)
    return CommitLogFile(
        file.begin, file.size, path, identity, known=known if file.is_indexed else None
    )


def with_older_files(
    storage: Storage, newer: Sequence[CommitLogFile], last: CommitLogFile | None
) -> tuple[CommitLogFile, ...]:
    """Return the log files of a store, preceded by the log files that only its archive has.

    If log files between the archive and the store are missing, the manifest is read again, because these files may have
    been archived meanwhile.

    Args:
        storage: a storage that joins store and archive; its `is_joined` must be true
        newer: the store's log files, at least one
        last: the last of these files with data

    Raises:
        UsageError: the archive belongs to another store, or reaches further than the store's log.
        StoreNotFoundError, StoreAccessError, FormatError.
    """
    if not isinstance(storage, JoinedStorage):
        raise TypeError(
            f"storage must be a JoinedStorage (of a store and its archive), not {storage!r}"
        )
    begin = newer[0].start
    if storage.joined_at != begin:
        if storage.joined_at is not None and storage.older.archive.manifest.end < begin:
            storage.reopen_archive()
        _check_is_same(storage, newer, last)
        storage.joined_at = begin
    have = {file.start for file in newer}
    older = [file for file in archived_files(storage.older) if file.start not in have]
    return tuple(sorted((*older, *newer)))


def _check_is_same(
    storage: JoinedStorage, newer: Sequence[CommitLogFile], last: CommitLogFile | None
) -> None:
    """Raise UsageError if the archive belongs to another store, or reaches further than the store's log."""
    log = storage.older.archive.manifest.log
    here = {file.start: file for file in newer}
    begin, end = newer[0].start, newer[-1].end
    for file in log:
        own = here.get(file.begin)
        overlaps = file.begin < end and begin < file.end
        # If the store has lost this log file, nothing can be compared. A lost file does not show that the archive
        # belongs to another store.
        is_in_a_hole = own is None and not any(
            file.begin < one.end and one.start < file.end for one in newer
        )
        if overlaps and not is_in_a_hole and (own is None or own.size != file.size):
            raise _another(storage)
    common = [file for file in log if file.begin in here and (file.is_sealed or file.messages)]
    # Files may differ, because messages may have been erased from the store or from the archive. A single file with
    # an equal beginning shows that store and archive belong together.
    newest = reversed(common[-_COMPARED_FILES:])
    if not any(begins_equally(storage, file, here[file.begin]) for file in newest):
        if any(file.is_sealed for file in common):
            raise _another(storage)
        if log and (common or log[-1].end <= begin) and not continues(storage, newer):
            raise _another(storage)
    if last is None or any(file.begin >= (last.start if file.is_sealed else end) for file in log):
        raise UsageError(
            f"{storage.older.root}: reaches further than the log of {storage.store}, "
            f"so {storage.store} is an older copy; read only the archive"
        )


def begins_equally(storage: JoinedStorage, file: LogFile, own: CommitLogFile) -> bool:
    """Return whether an archived log file begins as the store's log file at the same offset.

    Of a copy that was made before the file was full, one equal record is enough: a power cut may have taken the newest
    records from the store, which has written others in their place.
    """
    data_bytes = min(FRAME_BYTES, file.data_bytes)
    copy = storage.older.archive.read(file, 0, data_bytes)
    with closing(storage.newer.open(own.path)) as reader:
        data = reader.read(0, data_bytes)
    if file.is_sealed or data == copy:
        return data == copy
    return any(data[start:stop] == copy[start:stop] for start, stop in _records(copy))


def _records(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each whole record at the beginning of a log file starts and stops."""
    position = 0
    while True:
        try:
            stop = position + locate(data, position, len(data)).total_bytes
        except (RecordError, ValueError):
            return
        yield position, stop
        position = stop


def _another(storage: JoinedStorage) -> UsageError:
    return UsageError(
        f"{storage.older.root}: is not the archive of {storage.store}", arguments=["archive"]
    )


def continues(storage: JoinedStorage, newer: Sequence[CommitLogFile]) -> bool:
    """Return whether queue offsets in the store continue the queue offsets in the archive.

    If store and archive have no equal log file in common, this is the evidence that they belong together. Only archived
    log files that end where the store's log begins, or before, are counted.

    One continuing queue is enough evidence. Other queues may restart at 0, because their topic was deleted and created
    again.
    """
    begin = newer[0].start
    older = [file for file in storage.older.archive.manifest.log if file.end <= begin]
    # If no message is missing between archive and store, the next queue offset must follow without a gap. A copy that
    # was made before the file was full may lack messages.
    is_exact = bool(older) and older[-1].end == begin
    is_exact = is_exact and all(file.is_indexed and file.is_sealed for file in older)
    seen: set[tuple[str, int]] = set()
    for file in newer[:_COMPARED_FILES]:
        for message in _first_messages(storage, file):
            queue = message.topic, message.queue_id
            # Only the first message of a queue is compared with the archive. The later ones continue from the first
            # one.
            end = None if queue in seen else storage.older.queue_end(*queue, begin)
            seen.add(queue)
            if end is not None and (
                message.queue_offset == end or (message.queue_offset > end and not is_exact)
            ):
                return True
        is_exact = False
    return False


def _first_messages(storage: JoinedStorage, file: CommitLogFile) -> Iterator[MessageExt]:
    with closing(storage.newer.open(file.path)) as reader:
        data = reader.read(0, min(file.size, _COMPARED_BYTES))
    position = 0
    while True:
        try:
            layout = locate(data, position, len(data))
            yield decode_located(data, layout)
        except (RecordError, ValueError):
            # The next record was not read completely.
            return
        position += layout.total_bytes
