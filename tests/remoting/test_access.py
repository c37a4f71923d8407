"""Accounts of a plain_acl.yml: signatures, addresses, permissions."""

from pathlib import Path

import pytest

from reput import Message, open_store
from reput.errors import UsageError
from reput.wings.serve.remoting.access import AccessList, matches, signature
from reput.wings.serve.remoting.commands import Command, ResponseCode
from reput.wings.serve.remoting.requests import RequestCode
from reput.wings.serve.remoting.rights import AccessError
from tests.remoting.client import Client, serving
from tests.small import SMALL

ACL = """
globalWhiteRemoteAddresses:
- 10.10.103.*
- 192.168.0.21
accounts:
- accessKey: reader1
  secretKey: "12345678"
  whiteRemoteAddress: 10.0.0.{1,2}
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - orders=SUB
  - bills=PUB|SUB
- accessKey: master1
  secretKey: abcdefgh
  admin: true
"""


@pytest.fixture
def access(tmp_path: Path) -> AccessList:
    (tmp_path / "acl.yml").write_text(ACL)
    return AccessList.read(tmp_path / "acl.yml")


def signed(
    code: int, fields: dict[str, str], key: str, secret: bytes, body: bytes = b""
) -> Command:
    request = Command(code, fields={**fields, "AccessKey": key}, body=body)
    request.fields["Signature"] = signature(request, secret).decode()
    return request


def test_a_signature_is_the_one_that_clients_make() -> None:
    request = Command(12, fields={"topic": "T", "AccessKey": "K", "key": "k"}, body=b"body")
    # The result of: printf KkTbody | openssl dgst -sha1 -hmac secret -binary | base64
    expected = b"ooAPXqxA1XPhdkz6t4VWVlC09vg="
    assert signature(request, b"secret") == expected
    request.fields["_UNIQUE_KEY_QUERY"] = "true"
    request.fields["Signature"] = "anything"
    assert signature(request, b"secret") == expected


def test_only_what_an_account_may_is_let_through(access: AccessList) -> None:
    here = "127.0.0.1"
    pull = {"topic": "orders", "consumerGroup": "g"}
    access.check(signed(RequestCode.PULL_MESSAGE, pull, "reader1", b"12345678"), here)
    access.check(signed(RequestCode.SEND_MESSAGE_V2, {"b": "bills"}, "reader1", b"12345678"), here)
    access.check(signed(RequestCode.SEND_MESSAGE_V2, {"b": "any"}, "master1", b"abcdefgh"), here)
    refused = [
        signed(RequestCode.SEND_MESSAGE_V2, {"b": "orders"}, "reader1", b"12345678"),
        signed(RequestCode.SEND_BATCH_MESSAGE, {"b": "orders"}, "reader1", b"12345678"),
        signed(RequestCode.PULL_MESSAGE, {**pull, "topic": "secret"}, "reader1", b"12345678"),
        signed(RequestCode.GET_MAX_OFFSET, {"topic": "secret"}, "reader1", b"12345678"),
        signed(
            RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "g"}, "reader1", b"12345678"
        ),
        signed(RequestCode.PULL_MESSAGE, pull, "reader1", b"guessed!"),
        signed(RequestCode.PULL_MESSAGE, pull, "nobody1", b"12345678"),
        Command(RequestCode.PULL_MESSAGE, fields=dict(pull)),
    ]
    for request in refused:
        with pytest.raises(AccessError):
            access.check(request, here)
    changed = signed(RequestCode.PULL_MESSAGE, pull, "reader1", b"12345678")
    changed.fields["queueOffset"] = "5"
    with pytest.raises(AccessError, match="signature"):
        access.check(changed, here)
    for address in ("10.10.103.7", "192.168.0.21"):
        access.check(refused[-1], address)
    access.check(Command(RequestCode.SEND_MESSAGE, fields={"AccessKey": "reader1"}), "10.0.0.2")


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("*", "10.0.0.1", None),
        ("10.0.*.*", "10.0.9.1", "10.1.0.1"),
        ("10.0.0.1-20", "10.0.0.20", "10.0.0.21"),
        ("10.0.0.{1,7}", "10.0.0.7", "10.0.0.2"),
        ("10.0.0.1,10.0.0.3", "10.0.0.3", "10.0.0.2"),
        ("::1", "::1", "::2"),
        ("10.0.0.1", "10.0.0.1", "10.0.0.11"),
    ],
)
def test_patterns_of_addresses(pattern: str, inside: str, outside: str | None) -> None:
    assert matches(pattern, inside)
    assert outside is None or not matches(pattern, outside)


@pytest.mark.parametrize(
    "text",
    [
        "accounts: 7",
        "accounts: [{accessKey: abcdefgh}]",
        "a: [",
        "accounts: [{accessKey: a, secretKey: b}]",
    ],
)
def test_a_file_that_is_not_one_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "acl.yml").write_text(text)
    with pytest.raises(UsageError, match=r"acl\.yml"):
        AccessList.read(tmp_path / "acl.yml")


def test_a_port_with_accounts_answers_nobody_else(tmp_path: Path, access: AccessList) -> None:
    with open_store(tmp_path / "store", mode="rw", config=SMALL) as store:
        store.put(Message("orders", b"x"))
    place = {"topic": "orders", "queueId": "0"}
    with serving(tmp_path / "store", access=access) as running, Client(running.address) as client:
        assert client.ask(RequestCode.GET_MAX_OFFSET, place).code == ResponseCode.NO_PERMISSION
        request = signed(RequestCode.GET_MAX_OFFSET, place, "reader1", b"12345678")
        answer = client.ask(request.code, request.fields)
        assert (answer.code, answer.fields["offset"]) == (0, "1")
        assert client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, place).code == 0
