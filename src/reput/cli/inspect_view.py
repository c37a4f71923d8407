"""What `reput inspect` prints, in the width and colours of the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from reput.cli.output import emit
from reput.examine.inspection import Inspection
from reput.operations.inspect_text import labelled, tables, title, values


def show(found: Inspection, console: Console) -> None:
    """Print title, labels and values, then the tables."""
    console.print(Text(title(found), style="bold"), soft_wrap=True)
    for label, value in values(found):
        console.print(Text(labelled(label, value)), soft_wrap=True)
    for table in tables(found):
        console.print()
        emit(table, console)
