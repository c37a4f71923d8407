"""What a rebuild shows: its progress on the way, a summary at the end."""

from __future__ import annotations

from collections.abc import Iterator

from rich.progress import TextColumn

from reput.cli.progress import Bars
from reput.cli.sizes import format_size
from reput.messages.text import printable
from reput.rebuild.report import RebuildReport

_PHASES = {
    "scan": "reading the CommitLog",
    "rescan": "reading again what began inside a record",
    "write": "writing queues and indexes",
    "export": "writing the table",
    "search": "searching IndexFiles",
    "read": "reading messages",
    "index": "checking IndexFiles",
    "queues": "checking ConsumeQueues",
    "log": "checking the CommitLog",
}
_BYTE_PHASES = ("scan", "rescan", "export", "log")
_MOST_DAMAGE_LINES = 50
_LABEL_WIDTH = 14


class RebuildProgress(Bars):
    """A bar for each phase.

    An instance is the progress callback of a rebuild: called with phase, units done, units in all.
    """

    def __init__(self, *, transient: bool = False) -> None:
        super().__init__(TextColumn("{task.percentage:>3.0f}%"), transient=transient)
        self._tasks = {"start": self._bars.add_task("starting", total=None)}

    def __call__(self, phase: str, done: int, total: int) -> None:
        if (starting := self._tasks.pop("start", None)) is not None:
            self._bars.remove_task(starting)
        if phase not in self._tasks:
            description = _PHASES.get(phase, phase)
            self._tasks[phase] = self._bars.add_task(
                description, total=total, bytes=phase in _BYTE_PHASES
            )
        self._bars.update(self._tasks[phase], completed=done, total=total)


def summary_text(report: RebuildReport) -> str:
    """The closing summary, a label and a value on each line."""
    steps = {"read": report.scan_s, "write": report.write_s, "commit": report.commit_s}
    times = ", ".join(f"{step} {seconds:,.1f} s" for step, seconds in steps.items())
    first = f"Rebuilt {printable(report.output)} in {report.total_s:,.1f} s ({times})"
    rows = [f"  {label:<{_LABEL_WIDTH}}{value}" for label, value in _summary_rows(report)]
    return "\n".join([first, *rows])


def _summary_rows(report: RebuildReport) -> Iterator[tuple[str, str]]:
    rate = format_size(report.log_bytes / report.scan_s if report.scan_s else 0.0)
    torn = ", with a torn end" if report.torn_tail else ""
    log = f"{report.log_begin:,} to {report.log_end:,}, {format_size(report.log_bytes)} at {rate}/s"
    yield "CommitLog", log + torn
    yield "messages", f"{report.messages:,} ({report.messages_per_s:,.0f}/s), {report.keys:,} keys"
    if report.queue_files:
        dropped = f", {report.queue_entries_dropped:,} repeated ones left out"
        entries = (
            f"{report.queue_entries:,} entries{dropped if report.queue_entries_dropped else ''}"
        )
        yield "ConsumeQueue", f"{report.queues:,} queues, {report.queue_files:,} files, {entries}"
    if report.index_files:
        slots, items = report.config.hash_slots, report.config.index_items
        yield "IndexFile", f"{report.index_files:,} files of {slots:,} slots and {items:,} items"
    yield "written", format_size(report.bytes_written)
    for note in report.notes:
        yield "note", printable(note)
    yield "damage", _damage_in_words(report)


def damage_lines(report: RebuildReport) -> list[str]:
    """One line for each damaged place, the first fifty of them."""
    lines = [str(damage) for damage in report.damage[:_MOST_DAMAGE_LINES]]
    if len(report.damage) > len(lines):
        lines.append(
            f"… and {len(report.damage) - len(lines):,} more damaged places (--json lists all)"
        )
    return [printable(line) for line in lines]


def _damage_in_words(report: RebuildReport) -> str:
    if not report.damage:
        return "none"
    lost = sum(damage.length for damage in report.damage)
    places = "1 place" if len(report.damage) == 1 else f"{len(report.damage):,} places"
    return f"{places}, {lost:,} bytes of the CommitLog could not be read"
