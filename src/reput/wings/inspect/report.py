"""Define `reput.report`, which puts the findings and figures of a store on one HTML page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Unpack

import msgspec

from reput.base import Progress, Report, Severity, StoreConfig, checked, silent
from reput.core import ReaderOptions
from reput.engine.check import CheckReport, check, repair_command
from reput.engine.stores import StoreAnswer, StoresReport, takes_stores
from reput.errors import UsageError
from reput.io import DISK, Disk
from reput.wings.inspect.measuring.figures import StoreFigures
from reput.wings.inspect.pages.cluster_page import ClusterStore, cluster_page
from reput.wings.inspect.pages.store_page import store_page
from reput.wings.inspect.stats_operation import StatsReport, stats

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_MOST_NAME = 80


@dataclass(frozen=True, slots=True, repr=False)
class StoreReport(Report):
    """The check and the figures of a store. `html()` returns the page."""

    checked: CheckReport
    measured: StatsReport

    @property
    def is_complete(self) -> bool:
        """Return whether the whole log was readable."""
        return self.measured.is_complete

    @property
    def is_valid(self) -> bool:
        """Return whether the check found no problem, and the whole log was readable."""
        return self.checked.is_valid and self.measured.is_complete

    @property
    def severity(self) -> Severity | None:
        return self.checked.severity if self.measured.is_complete else Severity.DAMAGE

    @property
    def headline(self) -> str:
        return self.checked.headline

    def html(self) -> str:
        """Return the page: one file without scripts that needs no network."""
        store = self.checked.store
        return store_page(
            self.measured.figures,
            self.checked.findings,
            lambda finding: repair_command(finding, store),
            is_quick=self.checked.is_quick,
        )

    def lines(self) -> Iterator[str]:
        yield from self.checked.lines()
        yield ""
        yield from self.measured.lines()

    def as_dict(self) -> dict[str, Any]:
        return {"check": self.checked.as_dict(), "stats": self.measured.as_dict()}

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.html())}" width="100%" height="800"></iframe>'


class ClusterPages:
    """The pages of a report over several stores: one about all stores, and one per store in a folder beside it."""

    def __init__(self, output: str, names: Sequence[str]) -> None:
        """Prepare the pages without writing them. `output` is the path of the page about all stores."""
        self._folder = Path(output).with_suffix(".stores")
        width = len(str(len(names)))
        self._files = {
            name: f"{number:0{width}}-{_UNSAFE.sub('_', name)[-_MOST_NAME:]}.html"
            for number, name in enumerate(names, 1)
        }
        self._disk = Disk()

    @property
    def paths(self) -> dict[str, str]:
        """Return the path of each store's page, by name of the store."""
        return {name: str(self._folder / file) for name, file in self._files.items()}

    def write(self, answer: StoreAnswer[StoreReport]) -> None:
        """Write the page of one store, unless it could not be read. Raises StoreAccessError."""
        # If the report comes from the `resume` file, it is no StoreReport. An earlier run has then written the store's
        # page already.
        if isinstance(answer.report, StoreReport):
            DISK.create_folder(self._folder)
            page = answer.report.html().encode("utf-8", "backslashreplace")
            self._disk.replace(self._folder / self._files[answer.store], page)

    def cluster(self, answers: StoresReport[StoreReport], *, is_quick: bool) -> str:
        """Return the page about all stores.

        Raises UsageError if the report of a store in the `resume` file lacks figures that the page shows.
        """
        names = {answer.store for answer in answers.counted}
        stores = [
            ClusterStore(
                answer.store, answer.state, answer.headline,
                None if answer.report is None else _figures_of(answer.report),
                None if answer.store in names else answers.replica_of.get(answer.store),
                f"{self._folder.name}/{self._files[answer.store]}" if answer.report else "",
            )
            for answer in answers.worst_first()
        ]  # fmt: skip
        return cluster_page(stores, answers.headline, answers.differing, is_quick=is_quick)


def _figures_of(report: Report) -> StoreFigures:
    if isinstance(report, StoreReport):
        return report.measured.figures
    try:
        return StoreFigures.from_json(report.as_dict()["stats"])
    except (KeyError, TypeError, msgspec.ValidationError) as error:
        reason = "the file has a report that another version of reput wrote; choose another file"
        raise UsageError(f"resume: {reason}", arguments=["resume"]) from error


@takes_stores
@checked
def report(
    store: str | PathLike[str],
    *,
    quick: bool = False,
    check_config: StoreConfig | None = None,
    runner: Any = "auto",
    progress: Progress = silent,
    **reading: Unpack[ReaderOptions],
) -> StoreReport:
    """Check a store, then measure it. Nothing is written.

    Args:
        store: The folder that contains `commitlog/`, or its URL. A remote store is first copied to a temporary folder.
        quick: Check only names, sizes, headers, ends and samples.
        check_config: Settings for the check; by default the `config` in `reading`, or settings derived from the store's
            files.
        runner: Runs the check: "auto", "serial", "processes", "spark", or a SparkSession.
        progress: Called with the phase, units done and units in all.
        reading: Settings as for `open_store`.

    Raises:
        StoreNotFoundError, StoreAccessError, StoreChangedError, UsageError.
    """
    config = check_config or reading.get("config")
    check_report = check(
        fspath(store), quick=quick, config=config, runner=runner, progress=progress,
        storage_options=reading.get("storage_options"),
    )  # fmt: skip
    return StoreReport(check_report, stats(store, **reading))
