"""Export messages to lake tables and JSON Lines.

Each task writes a range of the log into files. One commit adds these files to the table. The commit also records a mark
for each log: the offset up to which it has been exported.
"""

from typing import TYPE_CHECKING

from reput.base import face

if TYPE_CHECKING:
    from reput.wings.lakes.api import export as export
    from reput.wings.lakes.body_decoders import BodyDecoder as BodyDecoder
    from reput.wings.lakes.body_decoders import json_text_of as json_text_of
    from reput.wings.lakes.commit import Destination as Destination
    from reput.wings.lakes.control import format_of as format_of
    from reput.wings.lakes.planning import open_stores as open_stores
    from reput.wings.lakes.report import ExportReport as ExportReport
    from reput.wings.lakes.request import ExportRequest as ExportRequest
    from reput.wings.lakes.tables.opening import ExportRows as ExportRows
    from reput.wings.lakes.tables.opening import ReadableDestination as ReadableDestination
    from reput.wings.lakes.tables.opening import open_export as open_export
else:
    __getattr__, __dir__ = face(__name__)
