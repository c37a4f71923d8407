"""Run a stream to its end on a machine of any speed."""

from collections.abc import Callable

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

_ATTEMPTS = 4


def run(start: Callable[[], StreamingQuery]) -> list[StreamingQuery]:
    """Run a stream. Repeat the run if its Python worker did not start in time. Return the queries of all runs.

    Spark gives the worker ten seconds, and on a busy machine the imports alone may take longer. Raises
    StreamingQueryException for any other failure, and after several attempts.
    """
    queries: list[StreamingQuery] = []
    while True:
        queries.append(start())
        try:
            queries[-1].awaitTermination()
            return queries
        except StreamingQueryException as error:
            if "worker failed to connect back" not in str(error) or len(queries) == _ATTEMPTS:
                raise
