"""Write the class archive (AppCDS) of Spark's JVM: a session lists the classes that it loads, then Java archives them.

`python -m reput.spark.warm_up LIST` runs this session. It prints Java's class path.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from reput.engine.rebuild import small_message
from reput.errors import SparkJobError, UsageError
from reput.format.commit_log import encode
from reput.format.file_names import COMMIT_LOG_FOLDER, offset_file_name
from reput.io import Scratch
from reput.spark.bulk_lookup import lookup
from reput.spark.java import find_java_home
from reput.spark.local_session import archive_cache, archive_name, is_plain, spark_home
from reput.spark.session import DRIVER_OPTIONS, QUICK_START, create_session
from reput.spark.source import register

_TIMEOUT_S = 1800
_NO_MESSAGES = "-Xlog:disable"


def archive_classes() -> Path:
    """Write the archive of Java classes that local sessions use from now on; return its path.

    Raises:
        JavaNotFoundError: No Java was found.
        SparkJobError: Java could not write the archive.
        StoreAccessError: The cache folder cannot be written.
    """
    java_home, cache = find_java_home(), archive_cache()
    name = archive_name(java_home, spark_home())
    if not is_plain(cache.folder):
        raise UsageError(
            f"{cache.folder}: Spark cannot pass this path to Java, because of special characters; set XDG_CACHE_HOME "
            "to another folder"
        )
    with Scratch.folder() as folder, cache.keeping(name) as archive:
        class_list = folder / "classes"
        class_path = _run([sys.executable, "-m", __name__, str(class_list)]).splitlines()[-1]
        _run([
            str(java_home / "bin" / "java"), "-Xshare:dump", f"-XX:SharedClassListFile={class_list}",
            f"-XX:SharedArchiveFile={archive}", *QUICK_START.split(), _NO_MESSAGES, "-cp", class_path,
        ])  # fmt: skip
    return cache.folder / name


def _run(command: list[str]) -> str:
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=_TIMEOUT_S, check=True,
        ).stdout  # fmt: skip
    except subprocess.CalledProcessError as error:
        reason = (error.stderr.strip() or error.stdout.strip() or "no reason given").splitlines()[
            -1
        ]
        raise SparkJobError(
            f"Java cannot write an archive of Spark's classes (AppCDS): {reason}"
        ) from error
    except (OSError, subprocess.SubprocessError) as error:
        raise SparkJobError(
            f"Java cannot write an archive of Spark's classes (AppCDS): {error}"
        ) from error


def _list_classes(to: str) -> None:
    """Run the first steps of a session, then end the JVM, so that Java writes its list of classes."""
    options = f'{QUICK_START} "-XX:DumpLoadedClassList={to}" {_NO_MESSAGES}'
    spark = create_session("local[2]", conf={DRIVER_OPTIONS: options})
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    class_path = gateway.jvm.System.getProperty("java.class.path")
    record = encode(small_message())
    with Scratch.file(COMMIT_LOG_FOLDER, offset_file_name(0), record) as store:
        register(spark)
        table = spark.read.format("rocketmq").load(str(store))
        table.groupBy("topic").count().collect()
        table.count()
        keys = {"topic": ["t"], "key": ["k"]}
        for keys_of_lookup in (keys, table.selectExpr("topic", "unique_key AS key")):
            lookup(spark, store, keys_of_lookup).write.format("noop").mode("overwrite").save()
    spark.stop()
    java = gateway.proc
    gateway.shutdown()
    with suppress(BrokenPipeError):
        java.stdin.close()
    java.wait(_TIMEOUT_S)
    print(class_path)


if __name__ == "__main__":
    _list_classes(sys.argv[1])
