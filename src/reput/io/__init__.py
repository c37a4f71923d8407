"""Open, map, sync, rename and delete files. No other room of reput does this.

read       A `Storage` lists and opens files: `LOCAL` those of this machine, others a bucket's or an archive's.
           `storage_of` returns the storage of a path or URL, and `Location` says what a path names.
write      `DISK` has the verbs that change files and folders of this machine, and that protect such changes. `Disk` is
           the disk of a store that this process owns. `locked` keeps others out.
stage      `StagedFiles` is what one task leaves for another, in a folder or a bucket (`ObjectStore`). `AnchoredRunner`
           and `PlacedRunner` give tasks what their process needs for that.
temporary  `Scratch` is deleted when its user or the process ends, `OwnCache` and `ProgramCache` last.
libraries  `ArrowFile`, `Parquet`, `RocksFolder`, `Archive`: files that pyarrow or RocksDB read.
"""

from typing import TYPE_CHECKING

from reput.base import face

if TYPE_CHECKING:
    from reput.io.anchors import boot_id as boot_id
    from reput.io.archive import Archive as Archive
    from reput.io.archive import ParquetIndex as ParquetIndex
    from reput.io.archive_storage import ArchiveFiles as ArchiveFiles
    from reput.io.archive_storage import ArchiveStorage as ArchiveStorage
    from reput.io.arrow_file import ArrowFile as ArrowFile
    from reput.io.bucket import Bucket as Bucket
    from reput.io.bucket import open_object_store as open_object_store
    from reput.io.copies import TreeEntry as TreeEntry
    from reput.io.deadlines import within as within
    from reput.io.disk import Disk as Disk
    from reput.io.disk import PooledWriter as PooledWriter
    from reput.io.file_systems import resolve as resolve
    from reput.io.local_disk import DISK as DISK
    from reput.io.lock import is_locked as is_locked
    from reput.io.lock import locked as locked
    from reput.io.mapped_file import MappedFiles as MappedFiles
    from reput.io.mapped_writer import MappedWriter as MappedWriter
    from reput.io.mounts import Mount as Mount
    from reput.io.object_store import MOST_PUT_BYTES as MOST_PUT_BYTES
    from reput.io.object_store import ObjectStore as ObjectStore
    from reput.io.open_files import OpenFiles as OpenFiles
    from reput.io.open_files import PooledReader as PooledReader
    from reput.io.parquet import Parquet as Parquet
    from reput.io.places import Location as Location
    from reput.io.program_cache import ProgramCache as ProgramCache
    from reput.io.reader import FileReader as FileReader
    from reput.io.reader import Identity as Identity
    from reput.io.reader import OpenFile as OpenFile
    from reput.io.reader import RangeReader as RangeReader
    from reput.io.reader import SparseReader as SparseReader
    from reput.io.reader import data_runs as data_runs
    from reput.io.rocksdb import LIBRARY_SETTINGS as LIBRARY_SETTINGS
    from reput.io.rocksdb import RocksFolder as RocksFolder
    from reput.io.scratch import Access as Access
    from reput.io.scratch import Scratch as Scratch
    from reput.io.signing import Signer as Signer
    from reput.io.staged import AnchoredRunner as AnchoredRunner
    from reput.io.staged import PlacedRunner as PlacedRunner
    from reput.io.staged import StagedFiles as StagedFiles
    from reput.io.staged import at_once as at_once
    from reput.io.stamps import Stamp as Stamp
    from reput.io.stamps import has_stamps as has_stamps
    from reput.io.stamps import is_open_for_writing as is_open_for_writing
    from reput.io.storage import LOCAL as LOCAL
    from reput.io.storage import FolderEntry as FolderEntry
    from reput.io.storage import GrowthWatch as GrowthWatch
    from reput.io.storage import JoinedStorage as JoinedStorage
    from reput.io.storage import Storage as Storage
    from reput.io.storage import Watch as Watch
    from reput.io.storage import Watched as Watched
    from reput.io.storage import listed_size as listed_size
    from reput.io.storage import size_of as size_of
    from reput.io.storage import storage_of as storage_of
    from reput.io.user_cache import OwnCache as OwnCache
    from reput.io.writer import FileWriter as FileWriter
else:
    __getattr__, __dir__ = face(__name__)
