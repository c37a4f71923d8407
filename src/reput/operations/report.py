"""`reput.report`: findings and figures of a store as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, Unpack

from reput.arguments import checked
from reput.config import StoreConfig
from reput.notebook import Report
from reput.operations.check import CheckReport, check, repair_command
from reput.operations.pages.store_page import store_page
from reput.operations.stats import StatsReport, stats
from reput.operations.stores import takes_stores
from reput.store.store_reader import ReaderOptions
from reput.tasks import Progress, silent


@dataclass(frozen=True, slots=True, repr=False)
class StoreReport(Report):
    """A check and the figures of a store; `html()` is the page."""

    checked: CheckReport
    measured: StatsReport

    @property
    def is_complete(self) -> bool:
        """Whether all of the log could be read."""
        return self.measured.is_complete

    @property
    def is_valid(self) -> bool:
        """Whether nothing is wrong, and all of the log could be read."""
        return self.checked.is_valid and self.measured.is_complete

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
        from html import escape

        return f'<iframe srcdoc="{escape(self.html())}" width="100%" height="800"></iframe>'


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
        store: The folder that contains `commitlog/`.
        quick: Check names, sizes, headers, ends and samples only.
        check_config: Settings for the check; None takes `config`, else what the store's own files show.
        runner: Runs the check: "auto", "serial", "processes", "spark", or a SparkSession.
        progress: Called with the phase, units done and units in all.
        reading: Settings as for `open_store`.

    Raises:
        StoreNotFoundError, StoreAccessError, StoreChangedError, UsageError.
    """
    config = check_config or reading.get("config")
    checked = check(fspath(store), quick=quick, config=config, runner=runner, progress=progress)
    return StoreReport(checked, stats(store, **reading))
