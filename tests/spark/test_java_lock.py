"""The owner's lock against a broker's: Java's FileChannel.tryLock, in the JVM that Spark uses."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import reput
from reput.errors import StoreLockedError
from tests.small import SMALL_64K


@pytest.mark.slow
def test_java_and_reput_do_not_own_a_store_at_once(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "store"
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    with reput.open_store(path, mode="rw", config=SMALL_64K):
        shutil.copytree(path, tmp_path / "copy")
        channel = jvm.java.io.RandomAccessFile(str(path / "lock"), "rw").getChannel()
        assert channel.tryLock(0, 1, False) is None
    owner = channel.tryLock(0, 1, False)
    assert owner is not None
    with pytest.raises(StoreLockedError):
        reput.open_store(path, mode="rw", config=SMALL_64K)
    owner.release()
    channel.close()
    reput.open_store(path, mode="rw", config=SMALL_64K).close()
