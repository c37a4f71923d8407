"""The console on a port, beside other work in the same loop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

import httpx
import pytest

from reput.engine.writer.shared_store import SharedStore
from reput.errors import UsageError
from reput.format.host import Host
from reput.wings.console.app import create_app
from reput.wings.console.server import HttpServer
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
LOOPBACK = Host("127.0.0.1", 0)


def test_it_answers_until_it_is_closed_and_leaves_signals_alone(golden: Golden) -> None:
    store = SharedStore(golden("basic").path)

    async def run() -> None:
        before = signal.getsignal(signal.SIGTERM)
        server = HttpServer(create_app({"basic": store}), LOOPBACK)
        await server.start()
        url = f"http://{server.address}/api/topics"
        async with httpx.AsyncClient(trust_env=False) as client:
            assert (await client.get(url)).status_code == 200
            assert signal.getsignal(signal.SIGTERM) is before
            with pytest.raises(UsageError, match="http"):
                await HttpServer(create_app({}), server.address).start()
        await server.close()
        async with httpx.AsyncClient(trust_env=False) as client:
            with pytest.raises(httpx.ConnectError):
                await client.get(url)

    asyncio.run(run())
    store.close()


@pytest.mark.every_case
@pytest.mark.parametrize("token", [None, "secret"])
def test_names_that_only_lead_here_need_a_token(token: str | None) -> None:
    async def run() -> int:
        server = HttpServer(create_app({}, token=token), LOOPBACK)
        await server.start()
        try:
            headers = {"host": "evil.example", "authorization": f"Bearer {token}"}
            async with httpx.AsyncClient(trust_env=False) as client:
                url = f"http://{server.address}/api/stores"
                return (await client.get(url, headers=headers)).status_code
        finally:
            await server.close()

    assert asyncio.run(run()) == (421 if token is None else 200)
