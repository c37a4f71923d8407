"""Use an archive of the classes that Spark's JVM loads. It halves the processor time of a session's start.

`reput.spark.warm_up` writes an archive for one installation of Java and one of Spark. The JVM ignores an archive that
was written by another Java, or for other jars. A truncated archive would crash the JVM, so an archive is used only with
its original content.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyspark

from reput.io import OwnCache

# Suppress warnings about an archive that does not match this JVM.
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"


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
