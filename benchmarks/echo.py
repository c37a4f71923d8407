"""An echo server, with which `reput serve` is compared. Its answers are as large as a broker's.

python -m benchmarks.echo PORT

It parses frames of RocketMQ's protocol and uses the same event loop as `reput serve`, but does no other work. So the
additional time of `reput serve` is the time of its own work. If both servers are slow, the machine is slow.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

from reput.wings.serve.remoting.commands import Command
from reput.wings.serve.remoting.headers import encode_command
from reput.wings.serve.remoting.requests import RequestCode
from reput.wings.serve.remoting.session import Session

PULLED_BYTES = 250 << 10
_BODY = bytes(PULLED_BYTES)


class _Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._session = cast(asyncio.Transport, transport), Session()

    def data_received(self, data: bytes) -> None:
        self._transport.write(b"".join(map(_answer, self._session.receive(data))))


def _answer(request: Command) -> bytes:
    body = _BODY if request.code == RequestCode.PULL_MESSAGE else b""
    return encode_command(request.answer(fields={"msgId": "0" * 32, "queueOffset": "0"}, body=body))


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Echo, "127.0.0.1", port)
    print("echo", flush=True)
    await server.serve_forever()


def main() -> None:
    """Serve until a signal ends the process."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(_serve(int(sys.argv[1])))
    else:
        uvloop.run(_serve(int(sys.argv[1])))


if __name__ == "__main__":
    main()
