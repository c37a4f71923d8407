"""Rebuild the indexes of a real store, compare them with the broker's indexes, and find all messages of one order.

A RocketMQ 4.9.3 broker wrote the store, which contains a week of a shop's messages
(tests/golden/data/PROVENANCE.md). The demo works on a copy in a temporary folder. It keeps the rebuilt store in
build/demo, so that the console can show it.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

import reput
from reput.engine.rebuild.report import RebuildReport
from reput.engine.rebuild.warm_up import warm_up
from reput.spark import rebuild
from reput.spark.session import create_session

ARCHIVE = Path(__file__).parents[1] / "tests" / "golden" / "data" / "orders.tar.xz"
KEPT = Path(__file__).parents[1] / "build" / "demo" / "store"
BROKER_CONFIG = Path("orders", "config.properties")
STORE = Path("orders", "store")
ORDER = "order-103921"
WINDOW = ("2026-10-17T00:00:00+00:00", "2026-10-18T00:00:00+00:00")
WIDTH = 100

HAPPENED = {
    ("orders", "created"): "ordered",
    ("orders", "cancelled"): "cancelled",
    ("payments", "authorised"): "payment authorised",
    ("payments", "declined"): "payment declined",
    ("%RETRY%billing", "authorised"): "billing failed",
    ("%DLQ%billing", "authorised"): "billing given up",
    ("shipments", "dispatched"): "dispatched",
    ("shipments", "delivered"): "delivered",
}


class Steps:
    """Prints a heading for each step of the demo, and at the end a table of the times that the steps took."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begun = time.monotonic()
        self._seconds: list[tuple[str, float]] = []

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        self._console.print()
        self._console.rule(Text(f"{len(self._seconds) + 1}. {title}", "bold cyan"), align="left")
        begun = time.monotonic()
        yield
        self._seconds.append((title, time.monotonic() - begun))

    def summary(self) -> Table:
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        for title, seconds in self._seconds:
            table.add_row(title, Text(f"{seconds:6.2f} s", "bold"))
        table.add_row("in all", Text(f"{time.monotonic() - self._begun:6.2f} s", "bold"))
        return table


def main(picture: str | None = None) -> int:
    """Run the demo. Return an exit code. If `picture` is given, draw the output as an SVG file with that name."""
    console = Console(width=WIDTH, highlight=False, record=picture is not None)
    steps = Steps(console)
    with tempfile.TemporaryDirectory(prefix="reput-demo-") as folder:
        broker, store = unpack(Path(folder), console, steps)
        with steps.step("lose both indexes"):
            for name in ("consumequeue", "index"):
                shutil.rmtree(store / name)
            console.print("Deleted consumequeue/ and index/ from a copy. commitlog/ remains.")
        rebuild_indexes(broker, store, console, steps)
        with steps.step("compare with the broker's files"):
            same = compare(broker / STORE, store, console)
        with reput.open_store(store) as opened:
            with steps.step(f"everything that happened to {ORDER}"):
                messages = history(opened, ORDER)
                console.print(timeline(messages))
                console.print(remark(messages))
            with steps.step("one parcel, by its tracking number, on one day"):
                find_parcel(opened, messages, console)
        kept = keep(store)
    console.print()
    console.rule(Text("time taken", "bold cyan"), align="left")
    console.print(steps.summary())
    if picture is not None:
        # Remove the font that rich names, because viewers would load it from the network.
        drawn = re.sub(
            r"@font-face \{.*?\}", "", console.export_svg(title="make demo"), flags=re.DOTALL
        )
        Path(picture).write_text(drawn, encoding="utf-8")
    console.print()
    console.print("To look at this store in a browser, open http://127.0.0.1:8080 after")
    console.print(
        f"  .venv/bin/reput serve {kept} --http 127.0.0.1:8080", style="bold", soft_wrap=True
    )
    return 0 if same else 1


def keep(store: Path) -> Path:
    """Copy the store to build/demo, and replace an earlier copy. Return the copy's path, relative if possible."""
    shutil.rmtree(KEPT, ignore_errors=True)
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(store, KEPT)
    here = Path.cwd()
    return KEPT.relative_to(here) if KEPT.is_relative_to(here) else KEPT


def unpack(folder: Path, console: Console, steps: Steps) -> tuple[Path, Path]:
    """Return the folder with the broker's store and settings, and a copy of the store to work on."""
    with steps.step("a store that a RocketMQ 4.9.3 broker wrote"):
        with tarfile.open(ARCHIVE) as archive:
            # Extraction filters exist since Python 3.11.4.
            if hasattr(tarfile, "data_filter"):
                archive.extractall(folder, filter="data")
            else:
                archive.extractall(folder)
        broker, store = folder, folder / "copy"
        shutil.copytree(broker / STORE, store)
        for name in ("commitlog", "consumequeue", "index"):
            files = [path for path in (store / name).rglob("*") if path.is_file()]
            size = sum(path.stat().st_size for path in files)
            console.print(f"  {name + '/':<15}{len(files):>3} files {size / 2**20:>6.1f} MiB")
    return broker, store


def rebuild_indexes(broker: Path, store: Path, console: Console, steps: Steps) -> None:
    config = reput.StoreConfig.from_broker_config(broker / BROKER_CONFIG)
    with steps.step("start Spark"):
        # If the kernels are not compiled yet, compile them now: the start of Spark leaves the processor mostly idle.
        threading.Thread(target=warm_up, daemon=True).start()
        spark = create_session(compiles=False)
        console.print(f"Spark {spark.version}, {spark.sparkContext.defaultParallelism} cores")
    with spark, steps.step("rebuild both on Spark"), bars() as progress:
        report = rebuild(spark, store, config=config, progress=progress)
        console.print(rebuilt(report))


@contextmanager
def bars() -> Iterator[Any]:
    """Yield a progress callback, which draws a bar for each phase if stderr is a terminal."""
    columns = (
        TextColumn("  {task.description:<6}"),
        BarColumn(40),
        TextColumn("{task.percentage:3.0f} %"),
    )
    tasks: dict[str, Any] = {}
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as shown:

        def progress(phase: str, done: int, total: int) -> None:
            if phase not in tasks:
                tasks[phase] = shown.add_task(phase, total=total)
            shown.update(tasks[phase], completed=done, total=total)

        yield progress


def rebuilt(report: RebuildReport) -> str:
    return (
        f"Read {report.messages:,} messages with {report.keys:,} keys and wrote {report.queue_files} files of "
        f"{report.queues} ConsumeQueues and {report.index_files} IndexFiles."
    )


def compare(broker: Path, store: Path, console: Console) -> bool:
    """Compare the rebuilt files with the broker's files, and print the result. Return whether they are identical.

    ConsumeQueue files are compared by name. IndexFiles are compared in order, because their names are creation times.
    """
    table = Table(box=None, padding=(0, 3, 0, 0))
    for name in ("folder", "files", "bytes", "the broker's own bytes"):
        table.add_column(name, justify="right" if name in ("files", "bytes") else "left")
    same = True
    for folder in ("consumequeue", "index"):
        theirs, ours = (files_of(root / folder) for root in (broker, store))
        names_agree = folder == "index" or list(theirs) == list(ours)
        agree = names_agree and list(theirs.values()) == list(ours.values())
        size = sum(map(len, ours.values()))
        verdict = Text("identical", "bold green") if agree else Text("DIFFERENT", "bold red")
        table.add_row(f"{folder}/", str(len(ours)), f"{size:,}", verdict)
        same = same and agree
    console.print(table)
    made, named = (min((root / "index").iterdir()).name for root in (broker, store))
    console.print(
        f"Only the names of IndexFiles differ. The broker's first is {made}, the moment when it was\n"
        f"made; the rebuilt one is {named}, the time of the first message in it."
    )
    return same


def files_of(folder: Path) -> dict[str, bytes]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def history(store: reput.MessageStore, order: str) -> list[reput.MessageExt]:
    """Return the messages of all topics that have the order as key, oldest first."""
    found = [
        message for topic in store.queues.topics() for message in store.query(topic, order).messages
    ]
    return sorted(found, key=lambda message: message.physical_offset)


def timeline(messages: list[reput.MessageExt]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("when (UTC)", "topic", "what", "details"):
        table.add_column(name, no_wrap=name != "details")
    for message in messages:
        tags = message.properties.get("TAGS", "")
        what = HAPPENED.get((message.topic, tags), tags)
        style = "red" if message.topic.startswith("%") else ""
        cells = (moment(message.store_timestamp), message.topic, what, details(message))
        table.add_row(*cells, style=style)
    return table


def details(message: reput.MessageExt) -> str:
    """Summarize a message's body in a few words."""
    body = json.loads(message.body)
    words = [f"{item['qty']} x {item['sku']}" for item in body.get("items", ())]
    for field, form in (
        ("total", "{:,.2f}"), ("city", "to {}"), ("amount", "{:,.2f}"), ("method", "by {}"),
        ("attempt", "attempt {}"), ("reason", "{}"), ("carrier", "by {}"), ("tracking", "{}"),
    ):  # fmt: skip
        words += [form.format(body[field])] if field in body else []
    return ", ".join(words + (["signed for"] if body.get("signed") else []))


def remark(messages: list[reput.MessageExt]) -> Text:
    """Return a sentence about the outcome of the order."""
    topics = {message.topic for message in messages}
    count = f"{len(messages)} messages in {len(topics)} topics."
    if "%DLQ%billing" not in topics or "shipments" not in topics:
        return Text(count)
    lost = next(message for message in messages if message.topic == "%DLQ%billing")
    amount = json.loads(lost.body)["amount"]
    return Text(f"{count} The goods arrived; the {amount:,.2f} were never booked.", "bold")


def find_parcel(
    store: reput.MessageStore, messages: list[reput.MessageExt], console: Console
) -> None:
    tracking = next(
        json.loads(message.body)["tracking"] for message in messages if message.topic == "shipments"
    )
    begin, end = (int(datetime.fromisoformat(day).timestamp() * 1000) for day in WINDOW)
    begun = time.perf_counter()
    found = store.query("shipments", tracking, begin=begin, end=end)
    took_ms = (time.perf_counter() - begun) * 1000
    console.print(f"topic shipments, key {tracking}, 17 October: found in {took_ms:.2f} ms")
    console.print(timeline(list(found.messages)))
    log = found.coverage.log
    read = "all of it could be read" if found.is_complete else "PARTS OF IT COULD NOT BE READ"
    console.print(f"Searched the CommitLog from {log.start:,} to {log.stop:,}: {read}.")


def moment(timestamp_ms: int) -> str:
    return f"{datetime.fromtimestamp(timestamp_ms // 1000, UTC):%a %d %b %H:%M:%S}"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
