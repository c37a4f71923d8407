"""Write messages as columns, JSON and CSV, and read them from JSON and CSV."""

from typing import TYPE_CHECKING

from reput.base import face

if TYPE_CHECKING:
    from reput.engine.messages.arrays import BATCH_BYTES as BATCH_BYTES
    from reput.engine.messages.arrays import cut_by_bytes as cut_by_bytes
    from reput.engine.messages.arrays import integers as integers
    from reput.engine.messages.arrays import one_array as one_array
    from reput.engine.messages.body_shape import MOST_COLUMNS as MOST_COLUMNS
    from reput.engine.messages.body_shape import NOTHING as NOTHING
    from reput.engine.messages.body_shape import NUMBERS as NUMBERS
    from reput.engine.messages.body_shape import BodyShape as BodyShape
    from reput.engine.messages.body_shape import Widenings as Widenings
    from reput.engine.messages.body_shape import united as united
    from reput.engine.messages.charsets import UTF_8 as UTF_8
    from reput.engine.messages.csv_text import MESSAGE_COLUMNS as MESSAGE_COLUMNS
    from reput.engine.messages.csv_text import csv_line as csv_line
    from reput.engine.messages.csv_text import message_cells as message_cells
    from reput.engine.messages.decode import Records as Records
    from reput.engine.messages.json_codec import RecordLines as RecordLines
    from reput.engine.messages.json_codec import message_fields as message_fields
    from reput.engine.messages.parsed_bodies import Misfit as Misfit
    from reput.engine.messages.parsed_bodies import ParsedBodies as ParsedBodies
    from reput.engine.messages.schema import ALL_COLUMNS as ALL_COLUMNS
    from reput.engine.messages.schema import COLUMNS as COLUMNS
    from reput.engine.messages.schema import CORRUPT_REASON as CORRUPT_REASON
    from reput.engine.messages.schema import column_name as column_name
    from reput.engine.messages.schema import select as select
    from reput.engine.messages.table_text import bytes_of as bytes_of
else:
    __getattr__, __dir__ = face(__name__)
