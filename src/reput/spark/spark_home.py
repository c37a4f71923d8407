"""Create a home folder of Spark for a local session.

Spark puts the file `python/lib/pyspark.zip` of its home folder at the front of its workers' Python path. A process
compiles every module that it imports from a zip file, which takes half a second of processor time whenever Spark starts
a daemon that forks workers. So a local session gets a home folder of links. In this folder, `pyspark.zip` is a folder
with links to the installed packages.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import py4j
import pyspark

from reput.io import ProgramCache

_ARCHIVE = "python/lib/pyspark.zip"
_PARTS = ("bin", "conf", "jars", "sbin")


def spark_home() -> Path:
    """Return a SPARK_HOME from which workers import quickly, or pyspark's own folder if none can be created."""
    own = Path(pyspark.__file__).parent.absolute()
    folder = ProgramCache.folder()
    if folder is None or not (own / _ARCHIVE).is_file():
        return own
    links = {name: own / name for name in _PARTS if (own / name).is_dir()}
    links |= {f"{_ARCHIVE}/pyspark": own, f"{_ARCHIVE}/py4j": Path(py4j.__path__[0]).absolute()}
    with suppress(OSError):  # The file system may not support symbolic links.
        return ProgramCache.folder_of_links(folder, f"spark-{pyspark.__version__}", links)
    return own
