"""One Spark session for all examples."""

from tests.spark.conftest import spark

__all__ = ["spark"]
