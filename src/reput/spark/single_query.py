"""Refuse a loaded table whose plan has the filters of another query.

Spark (4.1 to 4.3) keeps the plan that a Python source made for the filters of one query, and uses it for other queries
of the loaded table. So a table that takes filters may be used by one query only. Two marks show a second query: each is
a symbolic link with a text as its target, in the folder of temporary files of the session, which planner and tasks of
a local session share.

    reput-LOAD   the filters of the load's first plan. Another plan must have the same filters.
    reput-PLAN   the execution that read the plan first. No other execution may read it. A plan that was only explained
                 has another text here.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from pyspark import TaskContext

from reput.engine.tables import Condition
from reput.errors import UsageError
from reput.io import Scratch

_EXECUTION = "spark.sql.execution.id"
_EXPLAINED = "explained"
_AGAIN = "load the table again for each query, or omit pushFilters"


@dataclass(frozen=True, slots=True)
class SingleQueryPlan:
    """A plan with pushed filters, which only one query may read.

    folder: the folder of the marks
    name: identifies the plan
    """

    folder: str
    name: str

    @classmethod
    def of(cls, load: str, conditions: Sequence[Condition]) -> SingleQueryPlan:
        """Return a new plan of a loaded table. Raises UsageError if the table has a plan with other filters."""
        values = [(each.column, each.operator, each.value) for each in conditions]
        plan = cls(_folder(), uuid.uuid4().hex)
        filters = sha256(repr(values).encode("utf-8", "surrogatepass")).hexdigest()
        if plan._mark(load, filters) != filters:
            raise UsageError(
                "pushFilters: a query uses this table with other filters, and Spark would apply the filters of one "
                f"query to the other: {_AGAIN}"
            )
        return plan

    def check(self) -> None:
        """Raise UsageError unless this task belongs to the first query that reads the plan."""
        if _folder() != self.folder:
            raise UsageError(
                "pushFilters: works in local sessions only, because a second query of the table is noticed only there; "
                "use the options topic, queueId, key, uniqueKey, startingTimestamp and endingTimestamp"
            )
        context = TaskContext.get()
        execution = None if context is None else context.getLocalProperty(_EXECUTION)
        if execution is None or self._mark(self.name, execution) != execution:
            raise UsageError(
                "pushFilters: Spark would apply the filters of an earlier query of this table to this query: "
                f"{_AGAIN}"
            )

    def use_up(self) -> None:
        """Let no execution read the plan."""
        self._mark(self.name, _EXPLAINED)

    def _mark(self, name: str, text: str) -> str:
        """Set a mark, unless it exists. Return the text of the mark."""
        return Scratch.first_mark(os.path.join(self.folder, f"reput-{name}"), text)


def _folder() -> str:
    """Return the session's folder of temporary files, which Spark tells its Python processes. Raises UsageError."""
    if folder := os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]:
        return folder
    raise UsageError("pushFilters: works only in processes that Spark starts")
