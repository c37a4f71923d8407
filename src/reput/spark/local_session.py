"""Make local sessions start and run quickly: a home folder of links, Unix domain sockets, and a class archive.

Spark puts the file `python/lib/pyspark.zip` of its home folder at the front of its workers' Python path. A process
compiles every module that it imports from a zip file, which takes half a second of processor time whenever Spark starts
a daemon that forks workers. So a local session gets a home folder of links. In this folder, `pyspark.zip` is a folder
with links to the installed packages.

Over TCP, each task waits about 40 ms. The JVM sends its first message in pieces, each of which waits for the
acknowledgement of the previous one, and the kernel delays acknowledgements. So Spark and its Python workers on one
machine are connected through Unix domain sockets.

An archive of the classes that Spark's JVM loads halves the processor time of a session's start. `reput.spark.warm_up`
writes an archive for one installation of Java and one of Spark. The JVM ignores an archive that was written by another
Java, or for other jars. A truncated archive would crash the JVM, so an archive is used only with its original content.
"""

from __future__ import annotations

import hashlib
import os
import socket
from contextlib import suppress
from pathlib import Path

import py4j
import pyspark

from reput.io import OwnCache, ProgramCache, Scratch

_ZIP = "python/lib/pyspark.zip"
_PARTS = ("bin", "conf", "jars", "sbin")
_PREFIX = "reput-spark-"
# Longest folder name. A socket's address may have 107 bytes, and Spark appends a file name: 36 characters and `.sock`.
_LONGEST = 107 - len("/.sock") - 36
# Suppress warnings about an archive that does not match this JVM.
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"


def spark_home() -> Path:
    """Return a SPARK_HOME from which workers import quickly, or pyspark's own folder if none can be created."""
    package = Path(pyspark.__file__).parent.absolute()
    folder = ProgramCache.folder()
    if folder is None or not (package / _ZIP).is_file():
        return package
    links = {name: package / name for name in _PARTS if (package / name).is_dir()}
    links |= {f"{_ZIP}/pyspark": package, f"{_ZIP}/py4j": Path(py4j.__path__[0]).absolute()}
    with suppress(OSError):  # The file system may not support symbolic links.
        return ProgramCache.folder_of_links(folder, f"spark-{pyspark.__version__}", links)
    return package


def socket_settings() -> dict[str, str]:
    """Return Spark settings for Unix domain sockets in a new private folder, and for the daemon `reput.spark.daemon`.

    Returns no settings on systems without Unix domain sockets, or if the folder's name is too long. Spark requires no
    password for these sockets, so only the permissions of the folder protect them. Raises StoreAccessError.
    """
    if not hasattr(socket, "AF_UNIX"):
        return {}
    folder = Scratch.folder_until_exit(_PREFIX)
    if len(os.fsencode(folder)) > _LONGEST:
        return {}
    return {
        "spark.python.daemon.module": "reput.spark.daemon",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(folder),
    }


def archive_cache() -> OwnCache:
    return OwnCache("java")


def archive_name(java_home: Path, home: Path) -> str:
    """Return the file name of the archive for one installation of Java and one of Spark.

    The name has a digest of the name of the Java folder, the path of the Spark folder, and the version of Spark.
    """
    key = f"{java_home.name}\0{home}\0{pyspark.__version__}"
    return f"classes-{hashlib.sha256(key.encode(errors='surrogateescape')).hexdigest()[:16]}.jsa"


def archive_options(java_home: Path, home: Path) -> str:
    """Return JVM options for using the archive, or an empty string without an archive."""
    path = archive_cache().kept(archive_name(java_home, home))
    if path is None or not is_plain(path):
        return ""
    return f'"-XX:SharedArchiveFile={path}" -Xshare:auto {_QUIET}'


def is_plain(path: Path) -> bool:
    """Return whether Spark passes options with this path to the JVM unchanged."""
    return str(path).isprintable() and not set(str(path)) & set("\"'\\{}$")
