"""Compare the entries that belong to the messages of the log with the entries in a store's index files.

check, repair      compare every entry, explain each difference, and plan the repair
prove              finds the log ranges that an IndexFile covers (`proof`)
diff               pairs the entries of two stores
recover, rebuild   assign queue offsets to messages (`placement`)
"""

from typing import TYPE_CHECKING

from reput.base import face

if TYPE_CHECKING:
    from reput.engine.compare.by_number import EntryPlace as EntryPlace
    from reput.engine.compare.by_number import NumberedEntries as NumberedEntries
    from reput.engine.compare.by_number import NumberedLog as NumberedLog
    from reput.engine.compare.by_number import NumberedMessages as NumberedMessages
    from reput.engine.compare.by_number import dispatched_entries as dispatched_entries
    from reput.engine.compare.by_number import rocksdb_rules as rocksdb_rules
    from reput.engine.compare.columns import Column as Column
    from reput.engine.compare.columns import ExpectedEntries as ExpectedEntries
    from reput.engine.compare.columns import FoundEntries as FoundEntries
    from reput.engine.compare.columns import FoundItems as FoundItems
    from reput.engine.compare.columns import in_common as in_common
    from reput.engine.compare.columns import in_ranges as in_ranges
    from reput.engine.compare.columns import key_pairs as key_pairs
    from reput.engine.compare.columns import unmatched as unmatched
    from reput.engine.compare.found import BEYOND as BEYOND
    from reput.engine.compare.found import EntryPlaces as EntryPlaces
    from reput.engine.compare.found import IndexSpan as IndexSpan
    from reput.engine.compare.found import LogEdges as LogEdges
    from reput.engine.compare.found import QueueSpan as QueueSpan
    from reput.engine.compare.found import Span as Span
    from reput.engine.compare.found import Spans as Spans
    from reput.engine.compare.found import resolve_units as resolve_units
    from reput.engine.compare.log_file import ComparedFile as ComparedFile
    from reput.engine.compare.log_file import FileComparison as FileComparison
    from reput.engine.compare.log_file import IndexRun as IndexRun
    from reput.engine.compare.log_file import QueueRun as QueueRun
    from reput.engine.compare.placement import Offsets as Offsets
    from reput.engine.compare.placement import Placement as Placement
    from reput.engine.compare.placement import ascending as ascending
    from reput.engine.compare.placement import between as between
    from reput.engine.compare.placement import entry_of_each as entry_of_each
    from reput.engine.compare.placement import fitting as fitting
    from reput.engine.compare.placement import neighbours as neighbours
    from reput.engine.compare.proof import ChainCheck as ChainCheck
    from reput.engine.compare.proof import Proved as Proved
    from reput.engine.compare.proof import prove as prove
    from reput.engine.compare.proof import prove_all as prove_all
    from reput.engine.compare.proof import prove_new as prove_new
    from reput.engine.compare.proof import reader_of as reader_of
    from reput.engine.compare.proof import remember as remember
    from reput.engine.compare.stretch import LogStretch as LogStretch
else:
    __getattr__, __dir__ = face(__name__)
