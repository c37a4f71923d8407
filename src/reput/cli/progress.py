"""What the progress of several commands is made of."""

from __future__ import annotations

import sys

from rich.progress import ProgressColumn, Task
from rich.text import Text

from reput.cli.sizes import format_size


def stderr_is_terminal() -> bool:
    """Whether somebody watches."""
    return sys.stderr is not None and sys.stderr.isatty()


class RateColumn(ProgressColumn):
    """Bytes a second, for tasks with a true field `bytes`."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        known = speed is not None and task.fields.get("bytes")
        return Text(f"{format_size(speed)}/s" if known and speed else "", style="dim")
