"""Write messages as columns, JSON and CSV, and read them from JSON. `reput.format.message_fields` lists the fields."""

from typing import TYPE_CHECKING

from reput.base import face

if TYPE_CHECKING:
    from reput.engine.messages.codec import RecordLines as RecordLines
    from reput.engine.messages.codec import csv_line as csv_line
    from reput.engine.messages.codec import field_value as field_value
    from reput.engine.messages.codec import message_cells as message_cells
    from reput.engine.messages.codec import message_fields as message_fields
    from reput.engine.messages.codec import message_line as message_line
    from reput.engine.messages.decode import Records as Records
    from reput.engine.messages.decode import decode_batch as decode_batch
    from reput.engine.messages.json_lines import LineError as LineError
    from reput.engine.messages.message_lines import log_lines as log_lines
    from reput.engine.messages.message_text import BodyText as BodyText
    from reput.engine.messages.message_text import MessageTable as MessageTable
    from reput.engine.messages.message_text import answer_in_words as answer_in_words
    from reput.engine.messages.message_text import body_hex as body_hex
    from reput.engine.messages.message_text import body_preview as body_preview
    from reput.engine.messages.message_text import body_text as body_text
    from reput.engine.messages.message_text import charset_name as charset_name
    from reput.engine.messages.message_text import coverage_fields as coverage_fields
    from reput.engine.messages.message_text import coverage_in_words as coverage_in_words
    from reput.engine.messages.message_text import table_lines as table_lines
    from reput.engine.messages.put_lines import LineColumns as LineColumns
    from reput.engine.messages.put_lines import LinesPut as LinesPut
    from reput.engine.messages.put_lines import LinesReport as LinesReport
    from reput.engine.messages.schema import ALL_COLUMNS as ALL_COLUMNS
    from reput.engine.messages.schema import BATCH_BYTES as BATCH_BYTES
    from reput.engine.messages.schema import COLUMNS as COLUMNS
    from reput.engine.messages.schema import CORRUPT_REASON as CORRUPT_REASON
    from reput.engine.messages.schema import DAMAGE_COLUMNS as DAMAGE_COLUMNS
    from reput.engine.messages.schema import ORIGIN_COLUMNS as ORIGIN_COLUMNS
    from reput.engine.messages.schema import column_name as column_name
    from reput.engine.messages.schema import cut_by_bytes as cut_by_bytes
    from reput.engine.messages.schema import integers as integers
    from reput.engine.messages.schema import one_array as one_array
    from reput.engine.messages.schema import select as select
    from reput.engine.messages.table_text import bytes_of as bytes_of
    from reput.engine.messages.table_text import csv_names as csv_names
    from reput.engine.messages.table_text import csv_rows as csv_rows
    from reput.engine.messages.table_text import json_rows as json_rows
    from reput.engine.messages.table_text import with_iso_times as with_iso_times
    from reput.engine.messages.tail import LogTail as LogTail
    from reput.engine.messages.tail import TailFilter as TailFilter
    from reput.engine.messages.tail_lines import lines_of_all as lines_of_all
    from reput.engine.messages.topic_messages import messages_of_topic as messages_of_topic
    from reput.engine.messages.topic_messages import queue_messages as queue_messages
    from reput.format.message_fields import CSV_NAMES as CSV_NAMES
else:
    __getattr__, __dir__ = face(__name__)
