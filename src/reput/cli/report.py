"""Define the command `reput report`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from reput.cli.main import DAMAGED
from reput.cli.many import code_of, refuse_settings, resume_option
from reput.cli.options import (
    GivenStores,
    config_options,
    given_config,
    page_option,
    queue_entries_option,
    runner_options,
    stores_argument,
)
from reput.cli.output import check_page, warn, write_page

if TYPE_CHECKING:
    from reput.engine.stores import Chosen, StoreAnswer
    from reput.wings.inspect.api import StoreReport


@click.command(
    "report",
    short_help="Write a store's findings and figures as one HTML page.",
    epilog="\b\nExamples:"
    "\n  reput report /data/store --output report.html"
    "\n  reput report /data/store --output report.html --quick"
    "\n  reput report --stores fleet.toml --output cluster.html",
)
@stores_argument
@page_option(required=True)
@config_options
@queue_entries_option
@click.option("--quick", is_flag=True, help="Check names, sizes, headers, ends and samples only.")
@resume_option
@runner_options
def command(
    given: GivenStores,
    output: str,
    resume: str | None,
    broker_config: str | None,
    queue_entries: int | None,
    quick: bool,
    chosen: Chosen,
    **sizes: int | None,
) -> int:
    """Write a page about STORE: the findings of `reput check` and charts of `reput stats`.

    The page is one file without scripts, and needs no network. STORE is only read.

    For several STOREs, or a fleet file, the page FILE (--output) is about all stores: brokers, bytes and messages of
    each topic by broker, retention, findings. Each store has a page of its own, in a folder beside FILE (for
    cluster.html, the folder cluster.stores/).

    Exits with 0 when the store is valid, with 3 when messages or entries are lost or wrong (or a store could not be
    read), and with 5 when there are only warnings.
    """
    from reput.cli.progress import PhaseBars
    from reput.io import DISK
    from reput.wings.inspect.api import report

    store = given.one
    if store is None or resume is not None:
        refuse_settings(broker_config, {"queue_entries": queue_entries, **sizes})
        return _report_all(given, output, quick, resume, chosen)
    check_page(output, [store])
    config = given_config(store, broker_config, {"queue_entries": queue_entries, **sizes})
    opening: dict[str, Any] = {"broker_config": broker_config, **sizes}
    with DISK.writing_to(output, [store]):
        with PhaseBars(transient=True) as progress:
            found = report(
                store, quick=quick, check_config=config, runner=chosen, progress=progress, **opening
            )
        write_page(output, found.html())
    return code_of(found.severity)


def _report_all(
    given: GivenStores, output: str, quick: bool, resume: str | None, chosen: Chosen
) -> int:
    from reput.cli.progress import StoresBar
    from reput.engine.stores import over_stores
    from reput.io import DISK
    from reput.wings.inspect.report import ClusterPages, report

    stores = given.named()
    paths = [store.path for store in stores]
    check_page(output, paths)
    with DISK.writing_to(output, paths), StoresBar(len(stores)) as bar:
        pages = ClusterPages(output, [store.name for store in stores])

        def on_answer(answer: StoreAnswer[StoreReport]) -> None:
            bar(answer)
            # Write the page before the answer is recorded. So each recorded answer has its page when a run is resumed.
            pages.write(answer)

        found = over_stores(
            report, stores, on_answer=on_answer, runner=chosen, resume=resume,
            outputs=pages.paths, quick=quick,
        )  # fmt: skip
        page = pages.cluster(found, is_quick=quick)
    write_page(output, page)
    for one in found.failed:
        warn(f"{one.store}: not read: {one.error}")
    return DAMAGED if found.failed else code_of(found.severity)
