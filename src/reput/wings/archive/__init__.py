"""Write log files with indexes of their messages into a folder or bucket, verify, search and restore them.

`api` has the operations. An archive's manifest names its objects; `commit` replaces it, and other objects never change.
"""

from typing import TYPE_CHECKING

from reput.base import face

if TYPE_CHECKING:
    from reput.wings.archive.api import archive as archive
    from reput.wings.archive.api import restore as restore
    from reput.wings.archive.api import verify_archive as verify_archive
    from reput.wings.archive.api import with_archive as with_archive
    from reput.wings.archive.copying import upload_log as upload_log
    from reput.wings.archive.indexing import merge_indexes as merge_indexes
    from reput.wings.archive.manifests import commit as commit
    from reput.wings.archive.report import ArchiveReport as ArchiveReport
    from reput.wings.archive.report import ProvenMessage as ProvenMessage
    from reput.wings.archive.report import RestoreReport as RestoreReport
    from reput.wings.archive.report import VerifyReport as VerifyReport
else:
    __getattr__, __dir__ = face(__name__)
