"""Ask whether the container's `reput serve` answers. The exit code is 0 if it does, or if another command runs.

The command line of the process has the address where it listens. With --http, ask for /livez over HTTP. Without it,
connect.
"""

from __future__ import annotations

import socket
import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path

_TIMEOUT_S = 4.0


def main(process: str = "1") -> int:
    """Ask the process with this id. Return the exit code."""
    words = Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace").split("\0")
    if "serve" not in words:
        return 0
    http = _option(words, "--http")
    try:
        if http is None:
            host, port = _place(_option(words, "--listen") or "127.0.0.1:9876")
            socket.create_connection((host, port), _TIMEOUT_S).close()
        else:
            host, port = _place(http)
            scheme = "http" if _option(words, "--tls-cert") is None else "https"
            name = f"[{host}]" if ":" in host else host
            # The process runs on this machine, so its certificate is not checked.
            context = ssl._create_unverified_context()
            url = f"{scheme}://{name}:{port}/livez"
            opener = urllib.request.build_opener(
                urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
            )
            opener.open(url, timeout=_TIMEOUT_S).close()
    except (OSError, ValueError) as error:
        print(f"reput serve does not answer: {error}")
        return 1
    return 0


def _option(words: list[str], name: str) -> str | None:
    for place, word in enumerate(words):
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
        if word == name and place + 1 < len(words):
            return words[place + 1]
    return None


def _place(text: str) -> tuple[str, int]:
    """Return where to connect. An address for all interfaces stands for this machine."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), int(port)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
