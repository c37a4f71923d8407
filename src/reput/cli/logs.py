"""Write reput's log to stderr, one line per record. The options -v and -vv, or REPUT_LOG, set the level."""

from __future__ import annotations

import logging
import sys
import threading
import warnings

from reput.base import printable
from reput.errors import UsageError

_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)
_NAMES = ("warning", "info", "debug")


def level_of(verbosity: int, variable: str | None) -> int:
    """Return the log level that -v options select, by their number (`verbosity`).

    Without -v, the value of REPUT_LOG (`variable`) selects the level. Without both, only warnings are logged.

    Raises:
        UsageError: the variable does not contain the name of a level.
    """
    if verbosity:
        return _LEVELS[min(verbosity, len(_LEVELS) - 1)]
    if not variable:
        return logging.WARNING
    if variable.lower() not in _NAMES:
        raise UsageError(f"REPUT_LOG must be {', '.join(_NAMES)}, not {variable!r}")
    return _LEVELS[_NAMES.index(variable.lower())]


def set_up(level: int) -> None:
    """Log to stderr: messages of reput from `level` on, warnings and errors of other libraries.

    Without -vv a traceback is shortened to one line: users need the failed action and the error.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine(level))
    root, logger = logging.getLogger(), logging.getLogger("reput")
    # Several commands may run in one process (tests, notebooks): keep only one handler.
    for old in [attached for attached in root.handlers if isinstance(attached.formatter, _OneLine)]:
        root.removeHandler(old)
    root.addHandler(handler)
    logger.setLevel(level)
    logging.captureWarnings(True)
    warnings.simplefilter("default" if level == logging.DEBUG else "ignore")
    threading.excepthook = _thread_failed


class _OneLine(logging.Formatter):
    def __init__(self, level: int) -> None:
        super().__init__()
        self._level = level

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage().strip()
        if self._level > logging.DEBUG and "\n" in text:
            # Libraries log tracebacks as texts. The last line of a traceback is its error.
            lines = text.splitlines()
            text = lines[-1] if lines[0].startswith("Traceback") else lines[0]
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and self._level > logging.DEBUG:
            text += f": {error_in_words(error)}"
        line = f"reput: {printable(text)}"
        if self._level < logging.WARNING:
            line = f"reput: {record.levelname.lower()}: {record.name}: {printable(text)}"
        if record.exc_info and self._level <= logging.DEBUG:
            line += "\n" + self.formatException(record.exc_info)
        return line


def error_in_words(error: BaseException) -> str:
    """Return the type and the first line of an error, such as `ValueError: reason`."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _thread_failed(failed: threading.ExceptHookArgs) -> None:
    if failed.exc_value is not None and not issubclass(failed.exc_type, SystemExit):
        name = failed.thread.name if failed.thread else "a thread"
        logging.getLogger("reput").error("%s failed", name, exc_info=failed.exc_value)
