"""The connection of Spark with its Python workers on one machine: Unix domain sockets instead of TCP.

Over TCP a task waits some 40 ms: the JVM sends its first message in pieces, and each waits until the one before it was
acknowledged, which the kernel delays.
"""

from __future__ import annotations

import os
import socket

from reput.files.scratch import folder_until_exit

_PREFIX = "reput-spark-"
_LONGEST = 107 - len("/.sock") - 36  # of an address, without the names that Spark gives sockets


def socket_settings() -> dict[str, str]:
    """Return Spark settings for sockets in a new private folder, and for a daemon whose workers end quietly.

    There are none on systems without such sockets. The folder decides who may connect: Spark requires no password
    there.

    Raises StoreAccessError.
    """
    if not hasattr(socket, "AF_UNIX"):
        return {}
    folder = folder_until_exit(_PREFIX)
    if len(os.fsencode(folder)) > _LONGEST:
        return {}
    return {
        "spark.python.daemon.module": "reput.spark.daemon",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(folder),
    }
