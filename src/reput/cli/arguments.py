"""The options that stand for the arguments of the Python API, which errors name."""

from __future__ import annotations

from reput.errors import ReputError

# Where the option is not called as the argument is.
_OPTIONS = {
    "begin_ms": "--begin",
    "destination": "DEST",
    "end_ms": "--end",
    "fail_on_data_loss=False": "--no-fail-on-data-loss",
    "layout": "--to",
    "max_num": "--limit",
    "message_id": "--message",
    "most_entries": "--queue-messages",
    "most_messages": "--limit",
    "names": "--name",
    "queue_ids": "--queue-id",
    "split_bytes": "--split-size",
    "tags": "--tag",
    "target_file_bytes": "--target-file-size",
    "topics": "--topic",
}


def option_of(argument: str) -> str:
    """The option that gives this argument."""
    return _OPTIONS.get(argument, f"--{argument.replace('_', '-')}")


def in_options(error: ReputError) -> str:
    """The message of an error, with options in place of the arguments that it names."""
    return error.worded(option_of)
