"""Groups of tests that must run in one process: the tests of a file, and all tests that need Spark.

So fixtures of a file are created once, and there is only one JVM. (Since pytest 9.2, pytest-xdist's scheduler does not
receive pytest-xdist's own groups.)
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

_ROOT = Path(__file__).parents[1]
SPARK = "spark"


@cache
def scope_of(nodeid: str) -> str:
    """Return the file of a test, or SPARK for a test of a file that uses a session of this process."""
    path = nodeid.partition("::")[0]
    if path.startswith("tests/spark/"):
        return SPARK
    return SPARK if "spark: SparkSession" in (_ROOT / path).read_text(encoding="utf-8") else path


class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # of a package without types
    """Runs all tests of a file in one process, and all tests that use Spark's session in another one."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)
