"""Handle existing parts of a store before a write or a rebuild: unsupported parts, and expired queues.

A rebuild must keep queues whose messages have all expired, because the log does not show their queue offsets.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path

from reput.base import StoreConfig
from reput.core.log.dispatch_batch import Queue
from reput.core.queues.folders import QueueFolder, offset_entries, walk_queues
from reput.core.queues.forms import FILES, QueueForm, configured_form
from reput.core.queues.reader import BatchQueueReader, ConsumeQueueReader
from reput.core.store.facts import StoreFacts
from reput.core.store.message_database import database_contents
from reput.errors import StoreError, UsageError
from reput.format.file_names import BATCH_QUEUE_FOLDER, COMMIT_LOG_FOLDER, CONSUME_QUEUE_FOLDER
from reput.io import link, make_folder, refuse_archive


def refuse_to_write(facts: StoreFacts) -> None:
    """Raise UsageError if reput cannot write into a store: an archive, or a store with unsupported parts.

    Raises MissingExtraError if the store needs rocksdict and it is not installed, FormatError for a damaged database.
    """
    store = Path(facts.path)
    refuse_archive(store)
    if _has_other_form(facts) and facts.queue_form is None:
        raise UsageError(
            f"{store / CONSUME_QUEUE_FOLDER}: its RocksDB database lacks the file CURRENT; rebuild it with "
            "reput repair"
        )
    # STORE,LOG,LOG is the notation for a store with its log in other folders. No command can write into such a store.
    first = str(store).partition(",")[0]
    if not store.exists() and first != str(store) and Path(first).is_dir():
        raise UsageError(
            f"{store}: cannot be written: a store with log files outside {first}/{COMMIT_LOG_FOLDER} can only be "
            "read"
        )
    if facts.log_folders != (str(store / COMMIT_LOG_FOLDER),):
        raise UsageError(_needed_to_write(facts))
    if contents := database_contents(facts):
        raise UsageError(
            f"{store}: a broker keeps {' and '.join(contents)} of this store in RocksDB, where reput does not write "
            "them; it can be read, but only a broker of 5.4 or later can continue it"
        )


def _needed_to_write(facts: StoreFacts) -> str:
    if facts.ledger_folders:
        return (
            f"{facts.path}: has a DLedger log, which only brokers of its group write; to change "
            f"its messages, put them into a new store"
        )
    names = ", ".join(Path(folder).name for folder in facts.log_folders)
    return (
        f"{facts.path}: has its CommitLog in {names}, and reput writes only {COMMIT_LOG_FOLDER}/. Stop the broker, "
        f"move the files into {COMMIT_LOG_FOLDER}/, and name that folder alone in storePathCommitLog"
    )


def form_to_write(facts: StoreFacts, config: StoreConfig) -> QueueForm:
    """Return the form in which a store opened for writing has its queues, or will have them.

    Batch queues, which have a part of the topics, are not considered.

    Raises UsageError for settings that contradict the store, MissingExtraError if the form needs a missing package.
    """
    if (form := facts.queue_form) is None:
        form = configured_form(config)
        form.require()
        if form.name != FILES and facts.has_queue_files:
            raise UsageError(
                f"{facts.path}: has its queues in files, but storeType is defaultRocksDB: "
                "reput rebuild converts them"
            )
    return form


def writes_extensions(facts: StoreFacts, config: StoreConfig) -> bool:
    """Return whether ConsumeQueue entries of a store opened for writing get extension units.

    Existing files decide. The settings count only for a store without queues.
    """
    return facts.has_extension_files or (config.extension_files and not facts.has_queue_files)


def can_salvage(facts: StoreFacts) -> bool:
    """Return whether a repair with `salvage` supports the store's queues: their entries must identify a message."""
    has_batches = (Path(facts.path) / BATCH_QUEUE_FOLDER).is_dir()
    return facts.form_of_remains is None and not has_batches


def refuse_to_repair(facts: StoreFacts) -> None:
    """Raise UsageError for a store that cannot be repaired. The message states an alternative."""
    store = Path(facts.path)
    plain = (str(store / COMMIT_LOG_FOLDER),)
    if facts.log_folders not in (plain, facts.ledger_folders):
        raise UsageError(
            f"{store}: has its CommitLog in several folders, perhaps on several disks, which "
            f"repair cannot swap. Rebuild its indexes into another folder with reput rebuild, "
            f"and restore files of the log from a replica"
        )
    _has_other_form(facts)


def _has_other_form(facts: StoreFacts) -> bool:
    """Return whether the store has queues in another form than files. Raises UsageError if reput cannot change them."""
    if (form := facts.form_of_remains) is None:
        return False
    form.require()
    if facts.has_queue_files:
        raise UsageError(
            f"{facts.path}: keeps its queues in files and in {form.title}; reput rebuild converts them to one kind"
        )
    form.refuse_to_change(facts.path)
    return True


def keep_expired_queues(
    output: Path, new: Path, log_begin: int, kind: str = CONSUME_QUEUE_FOLDER
) -> int:
    """Create links in the folder `new` to queues whose messages have all expired. Return the number of linked queues.

    Like a broker, keep the last file of such a queue: it determines the queue offset of the next message. A queue
    counts as expired if all its entries have physical offsets before the beginning of the log.

    Args:
        output: The folder with the existing queues, which a rebuild replaces.
        new: The folder that receives the links.
        log_begin: The physical offset at which the log begins.
        kind: The folder of the queues: consumequeue/ or batchconsumequeue/.

    Raises:
        StoreAccessError: a file cannot be read or linked.
    """
    kept = 0
    for queue in _queue_folders(output, kind):
        target = new / kind / queue.topic / queue.name
        # Keep only queues whose messages have all expired. A queue that the rebuild has written (`target` exists) still
        # has messages in the log, so its old files are not kept.
        if target.exists() or not _has_expired(Path(queue.path), log_begin):
            continue
        make_folder(target)
        for _, file in offset_entries(queue.path):
            link(Path(file.path), target / file.name)
        kept += 1
    return kept


def expired_queue_ends(store: Path, log_begin: int) -> Iterator[tuple[Queue, tuple[int, int]]]:
    """Yield each expired queue, with the physical offset and the queue offset of its last entry.

    Raises StoreAccessError.
    """
    for queue in chain(
        expired_queues(store, log_begin), expired_queues(store, log_begin, BATCH_QUEUE_FOLDER)
    ):
        if queue.queue_id is not None:
            with closing(_reader(Path(queue.path))) as reader:
                last = reader.max_queue_offset() - 1
                place = reader.entry(last).physical_offset, last
            yield Queue(queue.topic, queue.queue_id), place


def expired_queues(
    store: Path, log_begin: int, kind: str = CONSUME_QUEUE_FOLDER
) -> Iterator[QueueFolder]:
    """Yield the folders of queues whose entries all have physical offsets before the beginning of the log.

    Raises StoreAccessError.
    """
    folders = _queue_folders(store, kind)
    return (queue for queue in folders if _has_expired(Path(queue.path), log_begin))


def _has_expired(folder: Path, log_begin: int) -> bool:
    """Return whether the queue has entries, and all their messages lie before the beginning of the log."""
    try:
        with closing(_reader(folder)) as queue:
            last = queue.max_queue_offset() - 1
            return last >= 0 and queue.entry(last).physical_offset < log_begin
    except StoreError:
        return False


def _reader(folder: Path) -> ConsumeQueueReader | BatchQueueReader:
    is_batch = folder.parent.parent.name == BATCH_QUEUE_FOLDER
    return (BatchQueueReader if is_batch else ConsumeQueueReader)(str(folder))


def _queue_folders(store: Path, kind: str = CONSUME_QUEUE_FOLDER) -> Iterator[QueueFolder]:
    return walk_queues(str(store / kind))
