"""Users with tokens and roles, and users that a proxy signs in."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import reput
from reput import Message
from reput.errors import UsageError
from reput.wings.console.access import COOKIE
from reput.wings.console.users import Users, cookie_of, parse_users
from tests.console.serving import console
from tests.small import SMALL

_TOKENS = {name: f"{name}-secret" for name in ("ann", "bob", "eve", "nil")}
_DIGESTS = {name: sha256(token.encode()).hexdigest() for name, token in _TOKENS.items()}
_FILE = f"""
[[user]]
name = "ann"
token_sha256 = "{_DIGESTS["ann"]}"
roles = ["search", "bodies", "download"]
[[user]]
name = "bob"
token_sha256 = "{_DIGESTS["bob"]}"
roles = ["search"]
[[user]]
name = "eve"
token_sha256 = "{_DIGESTS["eve"]}"
roles = ["search", "bodies"]
[[user]]
name = "nil"
token_sha256 = "{_DIGESTS["nil"]}"
[proxy]
addresses = ["10.1.0.0/16", "testclient-is-none"]
"""
_PROXY = """
[proxy]
addresses = ["127.0.0.1", "10.1.0.0/16"]
user_header = "X-Auth-User"
groups_header = "X-Auth-Groups"
[proxy.groups]
support = ["search"]
"on call" = ["search", "bodies", "download"]
"""
_SECRET = "the-secret-body"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with reput.open_store(tmp_path / "a", "rw", config=SMALL) as store:
        store.put(Message("orders", _SECRET.encode(), keys=["k"], tags="t"))
        store.put(Message("%DLQ%g", _SECRET.encode(), keys=["d"]))
    return tmp_path / "a"


@pytest.fixture
def audited() -> list[dict[str, object]]:
    return []


@pytest.fixture
def client(store: Path, audited: list[dict[str, object]]) -> Iterator[TestClient]:
    users = parse_users(_FILE.split("[proxy]")[0].encode(), "users")
    with console({"a": store}, users=users, audit=audited.append) as found:
        yield found


def as_user(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {_TOKENS[name]}", "accept": "text/html"}


PAGES = [
    "/?key=k", "/?topic=orders", "/?begin=1h+ago", "/messages/0", "/messages/0?view=hex", "/live", "/live/rows",
    "/groups/g",
    "/trace?key=k", "/topics/orders", "/queues/orders/0", "/api/messages?key=k", "/api/messages?key=k&format=jsonl",
    "/api/queues/orders/0", "/api/trace?key=k", "/api/trace?key=k&format=jsonl", "/api/stores", "/stores", "/start",
]  # fmt: skip
REFUSED = [
    "/messages/0/body", "/messages/0/record", "/download?key=k", "/?contains=secret", "/?contains=s&how=regex",
    "/live?contains=secret", "/api/messages?contains=secret", "/live/rows?contains=s&how=json",
]  # fmt: skip


def test_a_user_without_the_role_sees_no_body_anywhere(client: TestClient) -> None:
    hexadecimal = _SECRET.encode().hex(" ")[:20]
    seen: dict[str, list[str]] = {"ann": [], "bob": []}
    for name in seen:
        for page in PAGES:
            answer = client.get(page, headers=as_user(name))
            assert answer.status_code == 200, page
            if _SECRET in answer.text or hexadecimal in answer.text:
                seen[name].append(page)
    assert seen["bob"] == []
    # Some pages never show bodies, for example pages of stores.
    assert {"/?key=k", "/messages/0", "/messages/0?view=hex", "/live", "/api/messages?key=k"} <= {
        *seen["ann"]
    }
    for page in REFUSED:
        assert client.get(page, headers=as_user("bob")).status_code == 403, page
        assert client.get(page, headers=as_user("ann")).status_code in (200, 400), page
    assert client.get("/?contains=TAGS=t&how=property", headers=as_user("bob")).status_code == 200


def test_downloads_and_searches_have_roles_of_their_own(client: TestClient) -> None:
    assert client.get("/download?key=k", headers=as_user("eve")).status_code == 403
    assert "Download as" not in client.get("/?key=k", headers=as_user("eve")).text
    assert "Download as" in client.get("/?key=k", headers=as_user("ann")).text
    assert client.get("/messages/0/body", headers=as_user("eve")).text == _SECRET
    assert client.get("/", headers=as_user("nil")).status_code == 403
    assert client.get("/api/stores", headers={"authorization": "Bearer wrong"}).status_code == 401


def test_the_audit_log_names_who_read_what(
    client: TestClient, audited: list[dict[str, object]]
) -> None:
    client.get("/?key=k", headers=as_user("bob"))
    client.get("/messages/0/body", headers=as_user("bob"))
    client.get("/messages/0", headers={"accept": "text/html"})
    found = [(one.get("user"), one["path"], one["status"]) for one in audited]
    assert found == [
        ("bob", "/", 200),
        ("bob", "/messages/0/body", 403),
        (None, "/messages/0", 303),
    ]


def test_a_person_signs_in_with_a_token_of_their_own(client: TestClient) -> None:
    answer = client.post("/login?next=/stores", data={"token": _TOKENS["bob"]})
    assert (answer.status_code, answer.headers["location"]) == (303, "/stores")
    assert answer.cookies[COOKIE] == cookie_of(_TOKENS["bob"])
    client.cookies.set(COOKIE, cookie_of(_TOKENS["bob"]))
    assert client.get("/stores").status_code == 200
    assert client.get("/messages/0/body").status_code == 403
    assert client.post("/login", data={"token": "wrong"}).status_code == 403


def from_address(app: Any, address: str) -> TestClient:
    return TestClient(app, "http://localhost", client=(address, 1), follow_redirects=False)


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "::ffff:10.1.2.3"])
def test_a_proxy_names_the_user_and_the_groups(store: Path, address: str) -> None:
    with console({"a": store}, users=parse_users(_PROXY.encode(), "users")) as inner:
        client = from_address(inner.app, address)
        support = {"X-Auth-User": "ann", "X-Auth-Groups": "others, support"}
        assert client.get("/api/messages?key=k", headers=support).status_code == 200
        assert client.get("/messages/0/body", headers=support).status_code == 403
        on_call = {"X-Auth-User": "ann", "X-Auth-Groups": "on call"}
        assert client.get("/messages/0/body", headers=on_call).text == _SECRET
        assert client.get("/api/stores", headers={"X-Auth-User": "ann"}).status_code == 403
        assert client.get("/api/stores", headers={"X-Auth-Groups": "support"}).status_code == 401
        twice = [("X-Auth-User", "ann"), ("X-Auth-User", "bob"), ("X-Auth-Groups", "support")]
        assert client.get("/api/stores", headers=twice).status_code == 401


def test_a_client_adds_no_groups_to_those_of_the_proxy(store: Path) -> None:
    with console({"a": store}, users=parse_users(_PROXY.encode(), "users")) as inner:
        client = from_address(inner.app, "127.0.0.1")
        added = [("X-Auth-User", "ann"), ("X-Auth-Groups", "on call"), ("X-Auth-Groups", "support")]
        assert client.get("/api/stores", headers=added).status_code == 401


def test_a_proxy_may_pass_a_bearer_token_of_its_own_on(store: Path) -> None:
    with console({"a": store}, users=parse_users(_PROXY.encode(), "users")) as inner:
        client = from_address(inner.app, "127.0.0.1")
        passed = {"X-Auth-User": "ann", "X-Auth-Groups": "support", "authorization": "Bearer ey.ey"}
        assert client.get("/api/stores", headers=passed).status_code == 200
        assert client.get("/api/stores", headers={"authorization": "Bearer ey"}).status_code == 401


@pytest.mark.parametrize("cookie", [_DIGESTS["ann"], "", "=", "a", "%%%", "\u00fc", "A" * 5000])
def test_who_reads_the_file_of_users_cannot_sign_in(client: TestClient, cookie: str) -> None:
    digest = hmac.new(_DIGESTS["ann"].encode(), b"reput console", sha256).hexdigest()
    for value in (cookie, digest):
        header = {"cookie": f"{COOKIE}={value}".encode("latin-1")}
        assert client.get("/api/stores", headers=header).status_code == 401


def test_bodies_are_withheld_in_a_search_over_several_stores(store: Path, tmp_path: Path) -> None:
    users = parse_users(_FILE.split("[proxy]")[0].encode(), "users")
    with reput.open_store(tmp_path / "b", "rw", config=SMALL) as other:
        other.put(Message("orders", _SECRET.encode(), keys=["k"]))
    with console({"a": store, "b": tmp_path / "b"}, users=users) as client:
        shown = {name: client.get("/?key=k", headers=as_user(name)).text for name in ("ann", "bob")}
    assert _SECRET in shown["ann"]
    assert _SECRET not in shown["bob"]
    assert "2 messages" in shown["bob"]


def test_headers_from_elsewhere_mean_nothing(store: Path) -> None:
    with console({"a": store}, users=parse_users(_PROXY.encode(), "users")) as inner:
        for address in ("10.2.0.1", "192.0.2.1", "testclient"):
            client = from_address(inner.app, address)
            forged = {
                "X-Auth-User": "ann", "X-Auth-Groups": "on call", "X-Forwarded-For": "127.0.0.1",
                "Forwarded": "for=127.0.0.1", "X-Real-IP": "127.0.0.1",
            }  # fmt: skip
            assert client.get("/api/stores", headers=forged).status_code == 401
            # The login page exists only on servers with tokens.
            assert client.get("/login", headers=forged).status_code == 404


def test_the_server_trusts_no_forwarded_address() -> None:
    source = Path(reput.__file__).parent / "wings" / "console" / "server.py"
    assert re.search(r"proxy_headers=False", source.read_text())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[[user]]",
        "x = 1",
        "[[user",
        "user = 3",
        "proxy = 3",
        "[[user]]\nname='a'\ntoken_sha256='ab'",
        "[proxy]\naddresses=[]",
        "[proxy]\naddresses='10.0.0.1'",
        "[proxy]\naddresses=['host']",
        "[proxy]\naddresses=['10.0.0.1']\nuser_header='a b'",
        "[proxy]\naddresses=['10.0.0.1']\n[proxy.groups]\na=3",
        "[proxy]\naddresses=[3]\nroles=['x']",
        f"[[user]]\nname='a'\ntoken_sha256='{'0' * 64}'\nroles=['root']",
        f"[[user]]\nname='a'\ntoken='x'\ntoken_sha256='{'0' * 64}'",
        2 * f"[[user]]\nname='a'\ntoken_sha256='{'0' * 64}'\n",
    ],
)
def test_a_wrong_file_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError, match=r"^users: [^\n]+$"):
        parse_users(text.encode(), "users")


def test_one_token_is_a_user_who_may_all() -> None:
    user = Users.of_token("secret").with_token("secret")
    assert user is not None
    assert {*user.permissions} == {"search", "bodies", "download"}
