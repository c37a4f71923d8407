"""The service around its stores."""

import asyncio
import socket
from pathlib import Path

import pytest

from reput.engine.stores import open_store
from reput.engine.writer.shared_store import SharedStore
from reput.errors import StoreAccessError
from reput.format.host import Host
from reput.wings.serve.remoting.service import Service, ServiceOptions
from tests.remoting.client import Client
from tests.small import SMALL

ANYWHERE = Host("127.0.0.1", 0)


def test_clients_are_refused_until_the_store_is_open(tmp_path: Path) -> None:
    seen = []

    def open_one(path: str, address: Host) -> SharedStore:
        with pytest.raises(ConnectionRefusedError):
            Client(address)
        seen.append(address)
        return open_store(path, mode="rw", config=SMALL)

    async def serve() -> None:
        service = Service(
            [str(tmp_path / "a")], open_one, ServiceOptions(ANYWHERE, accepts_sends=True)
        )
        await service.start()
        Client(seen[0]).__exit__()
        await service.close()

    asyncio.run(serve())


@pytest.mark.parametrize("is_listening", [True, False])
def test_an_address_in_use_is_an_error_that_names_it(tmp_path: Path, is_listening: bool) -> None:
    async def serve(address: Host) -> None:
        service = Service(
            [str(tmp_path)], lambda path, _: SharedStore(path), ServiceOptions(address)
        )
        try:
            await service.start()
        finally:
            await service.close()

    with socket.socket() as other:
        other.bind(ANYWHERE)
        if is_listening:
            other.listen()
        address = Host(*other.getsockname())
        with pytest.raises(StoreAccessError, match=rf"^{address}: cannot listen there: "):
            asyncio.run(serve(address))
