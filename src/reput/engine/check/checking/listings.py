"""What names, sizes and ends of queue files and IndexFiles show. The full and the quick check share these rules.

A quick check imports this module, so it must not import modules that compile kernels.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from stat import S_ISREG

from reput.base import Finding, Kind
from reput.engine.check.checking.next_start import UNNOTICED
from reput.engine.compare import EntryPlaces
from reput.errors import ReputError, StoreChangedError, raise_if_refused
from reput.format.consume_queue import ENTRY_BYTES, PRE_BLANK, ConsumeQueueEntry, decode_entry
from reput.format.file_names import parse_offset_file_name
from reput.format.index_file import item_position
from reput.io import FileReader


@dataclass(slots=True)
class ListedQueue:
    """The files of a queue, and what their names and sizes show. A file that ends inside an entry loses that entry."""

    places: EntryPlaces
    findings: list[Finding] = field(default_factory=list)


def list_queue(folder: str, queue_entries: int, is_live: bool) -> ListedQueue:
    """List the files of a queue.

    Args:
        folder: Folder of the files.
        queue_entries: Entries per file.
        is_live: Whether a broker is appending to the queue.

    Raises OSError, FileNotFoundError too if a queue that is not live loses a file meanwhile.
    """
    whole, findings = queue_entries * ENTRY_BYTES, list[Finding]()
    files: list[tuple[int, int, str]] = []
    paths = sorted(Path(folder).iterdir())
    for path in paths:
        start = parse_offset_file_name(path.name)
        try:
            status = path.lstat()
        except FileNotFoundError:
            if is_live:  # The file has expired since it was listed, and so have those before it.
                files.clear()
                continue
            raise
        if start is None or not S_ISREG(status.st_mode):
            detail = "not the name of a ConsumeQueue file"
            findings.append(Finding(Kind.FOREIGN_FILE, str(path), detail))
            continue
        size = status.st_size
        is_new = is_live and path == paths[-1] and not size
        if (size != whole and not is_new) or start % whole:
            detail = (
                f"{size} bytes from logical offset {start}, but the files of this store have "
                f"{whole}"
            )
            findings.append(Finding(Kind.QUEUE_FILE_SIZE, str(path), detail, min(size, whole)))
        if size >= ENTRY_BYTES and start % ENTRY_BYTES == 0:
            files.append((start // ENTRY_BYTES, size // ENTRY_BYTES, str(path)))
    return ListedQueue(EntryPlaces(folder, tuple(files)), findings)


def unreadable_queue(folder: str, error: ReputError | OSError, is_live: bool) -> Iterator[Finding]:
    """Yield the finding for a queue that cannot be listed or read. Raises StoreAccessError for refused access."""
    raise_if_refused(error)
    if not is_live or not isinstance(error, (FileNotFoundError, StoreChangedError)):
        yield Finding(Kind.QUEUE_FILE_SIZE, folder, f"cannot be read: {error}")


def missing_files(places: EntryPlaces, expected: int, first: int) -> Iterator[Finding]:
    """Yield the finding for entries `expected` to `first` - 1, if there are any: no file has them."""
    if first > expected:
        path, at = places.place(expected)
        detail = f"no file has entries {expected} to {first - 1}"
        yield Finding(Kind.MISSING_QUEUE_FILE, path, detail, at, count=first - expected)


def gap(places: EntryPlaces, entry: int) -> Finding:
    """Return the finding for an unwritten entry that ends its queue too early."""
    path, at = places.place(entry)
    detail = f"entry {entry} is unwritten and ends the queue, although later entries are written"
    return Finding(Kind.QUEUE_GAP, path, detail, at)


def disorder(places: EntryPlaces, entry: int, offset: int, count: int = 1) -> Finding:
    """Return the finding for an entry that leads to a message before that of the previous entry."""
    path, at = places.place(entry)
    detail = (
        f"entry {entry} leads to {offset}, which is not after the message of the previous entry"
    )
    return Finding(Kind.QUEUE_DISORDER, path, detail, at, count=count)


def of_queue(finding: Finding) -> Finding:
    """Add what a starting broker does about a finding of a queue's files."""
    reaction = {Kind.QUEUE_FILE_SIZE: "does not start", Kind.FOREIGN_FILE: "ignores it"}.get(
        finding.kind,
        "cuts the queue there if it is in one of its last three files; otherwise does not notice it",
    )
    return replace(finding, at_next_start=reaction)


def check_queue_ends(
    folder: str, queue_entries: int, is_live: bool
) -> Generator[Finding, None, int]:
    """Check names and sizes of a queue's files, and that each file continues the previous one.

    Only the first and the last entry of each file are read, if the queue has several. Returns the number of the first
    entry; 0 if unknown. Raises StoreAccessError.
    """
    try:
        listing = list_queue(folder, queue_entries, is_live)
        yield from map(of_queue, listing.findings)
        files = listing.places.files
        for (first, count, _), (after, _, _) in pairwise(files):
            yield from map(of_queue, missing_files(listing.places, first + count, after))
        # A live queue grows and expires while it is read.
        if not is_live and len(files) > 1:
            yield from map(of_queue, _joints(listing.places))
        return files[0][0] if files else 0
    except (ReputError, OSError) as error:
        yield from map(of_queue, unreadable_queue(folder, error, is_live))
        return 0


def _joints(places: EntryPlaces) -> Iterator[Finding]:
    """Check that the entries at the ends of a queue's files are written, and lead to messages in order."""
    before: ConsumeQueueEntry | None = None
    empty: int | None = None
    for first, count, path in places.files:
        with FileReader(path) as reader:

            def entry(number: int, reader: FileReader = reader) -> ConsumeQueueEntry:
                return decode_entry(reader.read(number * ENTRY_BYTES, ENTRY_BYTES))

            begin, end = entry(0), entry(count - 1)
            if begin.is_written and empty is not None:
                yield gap(places, empty)
                return
            least = 0 if before is None else before.physical_offset + before.size
            if begin.is_written and begin != PRE_BLANK and begin.physical_offset < least:
                yield disorder(places, first, begin.physical_offset)
            if end.is_written:
                before = before if end == PRE_BLANK else end
            elif empty is None:
                written = bisect_left(range(count), True, key=lambda n: not entry(n).is_written)
                empty = first + written


def index_file_size(
    path: str, size: int, hash_slots: int, index_items: int, is_new: bool
) -> Iterator[Finding]:
    """Yield the finding for an IndexFile that does not have the size of its slots and items.

    `is_new`: a writer may still be creating the file, so it may be empty.
    """
    whole = item_position(hash_slots, index_items)
    if size != whole and not (is_new and not size):
        detail = f"{size} bytes, but {hash_slots} slots and {index_items} items take {whole}"
        yield Finding(Kind.INDEX_FILE_SIZE, path, detail, min(size, whole))


def index_order(after: str, first: int, before: str, last: int) -> Iterator[Finding]:
    """Yield the finding for an IndexFile that begins before the end of the file that sorts before it.

    Args:
        after: Path of the file.
        first: Physical offset of its first item.
        before: Name of the file that sorts before it.
        last: Physical offset of the last item of that file.
    """
    if first < last:
        yield Finding(
            Kind.INDEX_FILE_ORDER, after,
            f"begins at offset {first}, but {before}, which sorts before it, ends at {last}",
            cost="queries may return messages in the wrong order, or miss some",
            at_next_start=UNNOTICED,
        )  # fmt: skip
