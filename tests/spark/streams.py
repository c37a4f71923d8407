"""Run a stream to its end on a machine of any speed."""

from collections.abc import Callable

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

_ATTEMPTS = 4


def run(start: Callable[[], StreamingQuery]) -> list[StreamingQuery]:
    """Run a stream again until a run ends normally. Raises StreamingQueryException if a run fails.

    Spark gives a stream's Python worker ten seconds to start, which a busy machine may need only for its imports;
    such a stream is started again, as its operator would.
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
