"""Parse the command line, run a command, print its answer, and turn errors into exit codes.

`table` lists the commands. The modules with the name of a command define those of the core and of the engine; the
commands of a wing are in its `command` module, and use the names below: exit codes, options, output.
"""

from typing import TYPE_CHECKING

from reput.base import face

if TYPE_CHECKING:
    from reput.cli.formats import print_csv as print_csv
    from reput.cli.formats import print_report as print_report
    from reput.cli.main import DAMAGED as DAMAGED
    from reput.cli.main import FOUND as FOUND
    from reput.cli.main import NOT_FOUND as NOT_FOUND
    from reput.cli.main import WARNED as WARNED
    from reput.cli.main import start as start
    from reput.cli.many import MONITORING as MONITORING
    from reput.cli.many import answer_stores as answer_stores
    from reput.cli.many import code_of as code_of
    from reput.cli.many import fail_on_option as fail_on_option
    from reput.cli.many import limit_option as limit_option
    from reput.cli.many import refuse_settings as refuse_settings
    from reput.cli.many import resume_option as resume_option
    from reput.cli.options import DURATION as DURATION
    from reput.cli.options import END_TIME as END_TIME
    from reput.cli.options import NO_STORE as NO_STORE
    from reput.cli.options import SIZE as SIZE
    from reput.cli.options import TIME as TIME
    from reput.cli.options import GivenStores as GivenStores
    from reput.cli.options import all_formats as all_formats
    from reput.cli.options import archive_option as archive_option
    from reput.cli.options import archived_stores_argument as archived_stores_argument
    from reput.cli.options import catalog_properties as catalog_properties
    from reput.cli.options import check_archived as check_archived
    from reput.cli.options import check_window as check_window
    from reput.cli.options import complete_topics as complete_topics
    from reput.cli.options import config_from as config_from
    from reput.cli.options import config_options as config_options
    from reput.cli.options import flag as flag
    from reput.cli.options import fleet_option as fleet_option
    from reput.cli.options import given_config as given_config
    from reput.cli.options import listed_in as listed_in
    from reput.cli.options import message_options as message_options
    from reput.cli.options import open_from as open_from
    from reput.cli.options import own as own
    from reput.cli.options import owner_options as owner_options
    from reput.cli.options import path_option as path_option
    from reput.cli.options import queue_entries_option as queue_entries_option
    from reput.cli.options import read_store_argument as read_store_argument
    from reput.cli.options import reader_options as reader_options
    from reput.cli.options import refuse_a_message as refuse_a_message
    from reput.cli.options import refuse_logs_option as refuse_logs_option
    from reput.cli.options import report_format as report_format
    from reput.cli.options import runner_options as runner_options
    from reput.cli.options import runner_options_of as runner_options_of
    from reput.cli.options import split_logs_option as split_logs_option
    from reput.cli.options import store_argument as store_argument
    from reput.cli.options import stores_argument as stores_argument
    from reput.cli.options import time_window_options as time_window_options
    from reput.cli.options import together as together
    from reput.cli.options import topic_option as topic_option
    from reput.cli.options import writer_settings as writer_settings
    from reput.cli.output import advise_on_topic as advise_on_topic
    from reput.cli.output import console as console
    from reput.cli.output import emit as emit
    from reput.cli.output import print_json_lines as print_json_lines
    from reput.cli.output import print_rows as print_rows
    from reput.cli.output import warn as warn
    from reput.cli.progress import PhaseBars as PhaseBars
    from reput.cli.progress import StoresBar as StoresBar
    from reput.cli.progress import export_bar as export_bar
    from reput.cli.progress import signals_stop as signals_stop
    from reput.cli.query_view import record_printer as record_printer
else:
    __getattr__, __dir__ = face(__name__)
