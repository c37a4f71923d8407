"""Run tasks through Spark Connect: a session whose driver is a server, connected by a socket.

This process plans, like the driver of other sessions: it reads headers of the store, and commits the results of tasks.
Tasks run as DataFrames on the server's executors. So this process and the executors must have access to the same files
or URLs.
"""

from __future__ import annotations

import importlib.util
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException

from reput.io import Scratch
from reput.spark.errors import job_error, why_unfit
from reput.spark.session import is_connect
from reput.spark.ship import DEPENDENCIES, check_nothing_lacks, digest_function, pack, ship_code

_LOOKED_AT = "digest string, missing array<string>"
_ROWS = 1 << 12
"""Number of rows of the DataFrame whose tasks examine the executors.

With this many rows, Spark splits the DataFrame into as many partitions as the server can run tasks at the same time.
"""


class _ServerState(NamedTuple):
    """Which reput code a session's server has, and how many tasks it runs at once.

    digest       digest of the reput code on the server, which was sent or installed
    parallelism  number of slots of the executors when the server was asked
    """

    digest: str
    parallelism: int


_servers: dict[str, _ServerState] = {}
"""The state of each session's server, by session id.

Several sessions may use the same server. But a server does not share code between sessions, so each session must send
reput's code.
"""


def ship(spark: Any, needs: tuple[str, ...] = DEPENDENCIES) -> bool:
    """Make the Python workers of a session run this process's version of reput. Return whether the code had to be sent.

    Raises SparkJobError if the workers lack a module of `needs`.
    """
    if is_connect(spark):
        return _ship_to_server(spark, needs)
    return ship_code(spark.sparkContext, needs)


def _ship_to_server(spark: Any, needs: tuple[str, ...]) -> bool:
    package = Path(__file__).parents[1]
    digest = digest_function()(package)
    problem = _servers.get(spark.session_id)
    if problem is not None and problem.digest == digest:
        return False
    answers = _ask_workers(spark, needs)
    check_nothing_lacks("the workers of the Connect server", (names for _, names in answers))
    is_sent = {theirs for theirs, _ in answers} != {digest}
    if is_sent:
        archive = Path(Scratch.folder_until_exit("reput-connect-"), f"reput-{digest[:16]}.zip")
        pack(package, archive)
        try:
            spark.addArtifacts(f"{archive}#reput", archive=True)
        except (PySparkException, OSError) as error:
            raise job_error(error) from error
    _servers[spark.session_id] = _ServerState(digest, len(answers))
    return is_sent


def _ask_workers(spark: Any, needs: tuple[str, ...]) -> list[tuple[str, list[str]]]:
    """Return, for each task slot, the digest of the reput installed there ("" without one) and the missing modules."""
    digest_of = digest_function()

    # Spark sends a closure by value. It would send a function of this module by reference, and workers would need reput
    # to import the function.
    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        # `find_spec` finds reput without importing it.
        spec = importlib.util.find_spec("reput")
        digest = digest_of(Path(spec.origin).parent) if spec and spec.origin else ""
        missing = [name for name in needs if importlib.util.find_spec(name) is None]
        yield pa.RecordBatch.from_pydict({"digest": [digest], "missing": [missing]})

    try:
        rows = spark.range(_ROWS).mapInArrow(look, _LOOKED_AT).collect()
    except (PySparkException, OSError) as error:
        raise why_unfit(error) or job_error(error) from error
    return [(row.digest, list(row.missing)) for row in rows]


def slots_of(spark: Any) -> int:
    """Return how many tasks the server could run at the same time when it was asked. Raises SparkJobError."""
    _ship_to_server(spark, DEPENDENCIES)
    return _servers[spark.session_id].parallelism


def shares_files(spark: Any) -> bool:
    """Return whether the server's workers can read this process's temporary folder. Raises SparkJobError."""
    token = uuid.uuid4().hex
    with Scratch.file(".", "seen", token.encode()) as folder:
        name = str(folder / "seen")

        def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in batches:
                pass
            text = ""
            with suppress(OSError, ValueError):
                text = Path(name).read_text()
            yield pa.RecordBatch.from_pydict({"found": [text]})

        try:
            rows = spark.range(_ROWS).mapInArrow(look, "found string").collect()
        except (PySparkException, OSError) as error:
            raise job_error(error) from error
        return all(row.found == token for row in rows)


class ConnectJob:
    """A job of a Connect session in a thread of its own. See `reput.spark.runner._Job`."""

    def __init__(self, spark: Any, rows: Any) -> None:
        self._spark, self._rows = spark, rows
        self._tag = f"reput-{uuid.uuid4().hex}"
        self._finished = 0
        self._collected: list[Any] = []
        self._error: BaseException | None = None
        self.done = threading.Event()
        threading.Thread(target=self._collect, daemon=True).start()

    def _collect(self) -> None:
        spark = self._spark
        try:
            spark.addTag(self._tag)  # Only jobs of this thread get the tag.
            spark.registerProgressHandler(self._see)
            self._collected = self._rows.collect()
        except BaseException as error:
            self._error = error
        finally:
            with suppress(Exception):
                spark.removeProgressHandler(self._see)
            self.done.set()

    def _see(self, stages: Iterable[Any] | None, **_: Any) -> None:
        self._finished = sum(stage.num_completed_tasks for stage in stages or ())

    def finished_tasks(self) -> int:
        """Return the number of ended tasks in the server's last report."""
        return self._finished

    def cancel(self) -> None:
        """Ask the server to stop the job."""
        with suppress(Exception):
            # Ignore errors, because the caller is already handling one.
            self._spark.interruptTag(self._tag)

    def results(self) -> list[Any]:
        """Return the collected rows. Raises the job's error."""
        if isinstance(self._error, PySparkException | OSError):
            raise job_error(self._error) from self._error
        if self._error is not None:
            raise self._error
        return self._collected
