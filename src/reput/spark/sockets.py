"""Connect Spark with its Python workers on one machine through Unix domain sockets instead of TCP.

Over TCP, each task waits about 40 ms. The JVM sends its first message in pieces, each of which waits for the
acknowledgement of the previous one, and the kernel delays acknowledgements.
"""

from __future__ import annotations

import os
import socket

from reput.io import Scratch

_PREFIX = "reput-spark-"
# Longest folder name. A socket's address may have 107 bytes, and Spark appends a file name: 36 characters and `.sock`.
_LONGEST = 107 - len("/.sock") - 36


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
