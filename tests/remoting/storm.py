"""Hostile clients for `test_storm`: every request code with random fields, sizes, rights and speeds; and an echo.

python -m tests.remoting.storm hostile HOST PORT HTTP_PORT SEED SECONDS
python -m tests.remoting.storm echo
"""

from __future__ import annotations

import asyncio
import json
import random
import struct
import sys
import time
from contextlib import suppress
from typing import Any

from reput.wings.serve.remoting.access import signature
from reput.wings.serve.remoting.commands import Command
from reput.wings.serve.remoting.frames import Serialization
from reput.wings.serve.remoting.requests import RequestCode
from reput.wings.serve.remoting.session import Session

ACL = """
accounts:
- {accessKey: nothing, secretKey: "12345678"}
- {accessKey: reader1, secretKey: "12345678", defaultTopicPerm: SUB, defaultGroupPerm: SUB}
- {accessKey: writer1, secretKey: "12345678", defaultTopicPerm: PUB|SUB, defaultGroupPerm: PUB|SUB,
   topicPerms: [good=DENY]}
- {accessKey: goodone, secretKey: "12345678", defaultTopicPerm: PUB|SUB, defaultGroupPerm: PUB|SUB}
"""
SECRET = b"12345678"
_KEYS = ("nothing", "reader1", "writer1", "writer1", "writer1")
_CONNECTIONS, _HTTP_CONNECTIONS = 60, 20
_CODES = [*RequestCode, 0, -1, 9_999]
_NAMES = (
    "topic", "b", "a", "c", "d", "e", "f", "g", "h", "i", "j", "m", "consumerGroup", "producerGroup", "group",
    "queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset", "suspendTimeoutMillis", "subscription",
    "subVersion", "key", "maxNum", "beginTimestamp", "endTimestamp", "offset", "timestamp", "index", "count",
    "delayLevel", "originTopic", "clientID", "commitLogOffset", "tranStateTableOffset", "commitOrRollback",
    "defaultTopic", "defaultTopicQueueNums", "properties", "bornTimestamp", "flag", "namespace", "cluster",
)  # fmt: skip
_TOPICS = ("h1", "h2", "good", "%RETRY%g", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC")


def request_of(chance: random.Random) -> Command:
    """Return a random request."""
    code = chance.choice(_CODES)
    if chance.random() < 0.3:
        code = chance.choice((11, 310, 34, 12, 41, 15))
    fields = {name: _value(chance, name) for name in _NAMES if chance.random() < 0.9}
    body = _body(chance, code)
    how = chance.choice(list(Serialization))
    request = Command(code, chance.randrange(1 << 20), chance.choice((0, 0, 0, 2)), None, fields, body,
                      serialization=how)  # fmt: skip
    if chance.random() < 0.95:
        request.fields["AccessKey"] = chance.choice(_KEYS)
        request.fields["Signature"] = signature(request, SECRET).decode()
    return request


def _value(chance: random.Random, name: str) -> str:
    if name in ("topic", "b", "originTopic"):
        return chance.choice((*_TOPICS, f"h{chance.randrange(2_000)}", "x" * 200, ""))
    if name in ("consumerGroup", "producerGroup", "group", "a"):
        return chance.choice(("g", f"g{chance.randrange(500)}", "no group", "y" * 300))
    if name in ("c", "defaultTopic"):
        return "TBW102"
    if name == "subscription":
        return chance.choice(
            ("*", "a || b", "||".join(f"t{n}" for n in range(chance.choice((10, 3_000, 30_000)))))
        )
    if name in ("i", "properties"):
        return chance.choice(
            ("", "KEYS\1k", "DELAY\1" + "1", "TRAN_MSG\1true\2PGROUP\1g", "k\1v\2" * 2_000)
        )
    if name in ("key", "clientID", "namespace", "cluster"):
        return chance.choice(("k", "reput", "z" * chance.choice((10, 1_000, 100_000))))
    return str(
        chance.choice(
            (0, 0, 0, 1, 2, 4, 6, 8, 32, -1, 1 << 31, 1 << 62, 30_000, chance.randrange(1_000))
        )
    )


def _body(chance: random.Random, code: int) -> bytes:
    if chance.random() < 0.5 and code not in (34, 41, 42, 310, 320):
        return b""
    count = chance.choice((1, 3, 30, 300, 3_000))
    if code == RequestCode.HEART_BEAT:
        wanted = [{"topic": f"h{n}", "subString": "*"} for n in range(chance.choice((0, 1, 20)))]
        groups = [
            {"groupName": f"g{chance.randrange(3_000)}", "subscriptionDataSet": wanted}
            for _ in range(count)
        ]
        return json.dumps({"clientID": "c", "consumerDataSet": groups}).encode()
    if code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
        queues = [{"topic": "h1", "brokerName": "s", "queueId": n} for n in range(10 * count)]
        return json.dumps({"consumerGroup": "g", "clientId": "c", "mqSet": queues}).encode()
    if code == RequestCode.SEND_BATCH_MESSAGE:
        return (struct.pack(">iiiii", 22, 0, 0, 0, 0) + struct.pack(">h", 0)) * count
    sizes = (0, 10, 1_000, 1_000, 10_000, 100_000, 5 << 20, 15 << 20)
    return bytes(chance.choices(sizes, (9, 20, 30, 9, 9, 3, 0.3, 0.2))[0])


async def hostile(host: str, port: int, chance: random.Random, end: float) -> None:
    """Run clients one after the other: each sends some requests, reads answers or not, and leaves."""
    while time.monotonic() < end:
        try:
            reader, writer = await asyncio.open_connection(host, port)
        except OSError:
            await asyncio.sleep(0.1)
            continue
        with suppress(OSError, asyncio.TimeoutError):
            async with asyncio.timeout(chance.choice((1, 5, 20))):
                await _talk(reader, writer, chance)
        writer.transport.abort()


async def _talk(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random
) -> None:
    reads, speed = chance.random() < 0.7, chance.choice(("fast", "fast", "slow", "burst", "half"))
    for _ in range(chance.choice((1, 10, 100))):
        data = Session().send(request_of(chance))
        if chance.random() < 0.02:
            data = bytes(chance.randrange(256) for _ in range(chance.choice((4, 100, 1_000))))
        if speed == "burst" and len(data) < 10_000:
            data *= chance.choice((10, 100))
        if speed == "half":
            data = data[: len(data) // 2]
        if speed == "slow":
            for at in range(0, min(len(data), 2_000), 100):
                writer.write(data[at : at + 100])
                await asyncio.sleep(0.02)
            data = data[2_000:]
        writer.write(data)
        await writer.drain()
        if speed == "half":
            await asyncio.sleep(30)
        if reads:
            with suppress(asyncio.TimeoutError):
                async with asyncio.timeout(0.05):
                    await reader.read(1 << 16)
        await asyncio.sleep(chance.choice((0, 0.001, 0.01, 0.1)))


async def hostile_http(host: str, port: int, chance: random.Random, end: float) -> None:
    """Send HTTP requests slowly or in part, or do not read the answers."""
    paths = (
        "/api/topics",
        "/api/messages?topic=h1&limit=1000",
        "/",
        "/topics",
        "/messages/" + "9" * 4_500,
        "/x",
    )
    while time.monotonic() < end:
        with suppress(OSError, asyncio.TimeoutError):
            async with asyncio.timeout(20):
                reader, writer = await asyncio.open_connection(host, port)
                text = f"GET {chance.choice(paths)} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer token\r\n\r\n"
                whole = chance.random() < 0.5
                writer.write(text.encode() if whole else text[: len(text) // 2].encode())
                await asyncio.sleep(chance.choice((0.05, 0.5, 15)))
                if chance.random() < 0.5:
                    await reader.read(1 << 20)
                writer.transport.abort()
        await asyncio.sleep(0.05)


async def storm(host: str, port: int, http: int, seed: int, seconds: float) -> None:
    """Run many hostile clients at the same time, on both ports."""
    end = time.monotonic() + seconds
    clients: list[Any] = [
        hostile(host, port, random.Random(f"{seed}-{n}"), end) for n in range(_CONNECTIONS)
    ]
    clients += [
        hostile_http(host, http, random.Random(f"{seed}-http-{n}"), end)
        for n in range(_HTTP_CONNECTIONS)
    ]
    await asyncio.gather(*clients)


async def echo() -> None:
    """Send back all input, to measure the speed of this machine."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "echo":
        asyncio.run(echo())
    else:
        place, number, http_number, start, duration = sys.argv[2:]
        asyncio.run(storm(place, int(number), int(http_number), int(start), float(duration)))
