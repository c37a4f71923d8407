"""What an export shows: its progress on the way, a summary at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from reput.cli.rebuild_view import RebuildProgress
from reput.cli.sizes import format_size
from reput.export.report import ExportReport
from reput.messages.text import printable

_MOST_DAMAGE_LINES = 50
_MOST_REASONS = 3
_MOST_CHANGES = 20
_LABEL_WIDTH = 14


@contextmanager
def export_progress() -> Iterator[Callable[[str, int, int], None]]:
    """A bar for the bytes of the log on stderr; nothing where stderr is no terminal."""
    with RebuildProgress() as bars:

        def show(phase: str, done: int, total: int) -> None:
            if phase == "export":
                bars(phase, done, total)

        yield show


def summary_text(report: ExportReport) -> str:
    """The closing summary, a label and a value on each line."""
    did = "Exported to" if report.committed else "Nothing new for"
    first = f"{did} {printable(report.destination)} in {report.total_s:,.1f} s"
    return "\n".join(
        [first, *(f"  {label:<{_LABEL_WIDTH}}{value}" for label, value in _rows(report))]
    )


def _rows(report: ExportReport) -> Iterator[tuple[str, str]]:
    for name, (start, stop) in report.stores.items():
        yield "store", f"{printable(name)}: {start:,} to {stop:,}"
    if report.committed:
        rate = f" ({report.rows / report.total_s:,.0f}/s)" if report.total_s else ""
        yield "messages", f"{report.rows:,} of {report.messages:,} {_where(report)}{rate}"
        yield "written", f"{_files(report)}{format_size(report.file_bytes)}"
    if report.rejects:
        yield "rejected rows", f"{report.rejects:,}; their column reason says why"
    if report.json_errors:
        yield "JSON errors", f"{report.json_errors:,} rows; their column json_error says why"
    for reason, count in list(report.reasons.items())[:_MOST_REASONS]:
        yield "reason", f"{printable(reason)} ({count:,})"
    changes = report.json_changes if report.committed else []
    for change in changes[:_MOST_CHANGES]:
        yield "JSON field", printable(change)
    if len(changes) > _MOST_CHANGES:
        yield "JSON field", f"… and {len(changes) - _MOST_CHANGES:,} more (--json lists all)"
    if report.bad_bodies:
        yield (
            "bad CRCs",
            f"{report.bad_bodies:,} messages have a body other than the one that was put",
        )
    for note in report.notes:
        yield "note", printable(note)
    lost = sum(damage.length for damage in (*report.damage, *report.missing))
    count = len(report.damage) + len(report.missing)
    places = "1 place" if count == 1 else f"{count:,} places"
    yield "damage", f"{places}, {lost:,} bytes lost" if count else "none"


def _where(report: ExportReport) -> str:
    """Not all of a log is looked at where indexes lead to what was asked for."""
    return "in the log" if report.is_whole else "looked at"


def _files(report: ExportReport) -> str:
    if not report.files and report.file_bytes:  # a stream
        return ""
    return "1 file, " if report.files == 1 else f"{report.files:,} files, "


def damage_lines(report: ExportReport) -> list[str]:
    """One line for each place that could not be read, the first fifty of them."""
    lost = [*report.missing, *report.damage]
    lines = [printable(str(damage)) for damage in lost[:_MOST_DAMAGE_LINES]]
    if len(lost) > len(lines):
        lines.append(f"… and {len(lost) - len(lines):,} more damaged places (--json lists all)")
    return lines
