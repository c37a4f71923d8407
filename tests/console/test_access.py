"""Access to the console: the token, the hosts, other sites; and the permissions of a page."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from starlette.testclient import TestClient

from reput.wings.console.access import own_path
from tests.console.serving import console
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
TOKEN = "correct horse"
PATHS = ["/", "/topics", "/api/topics", "/metrics", "/messages/0", "/api/openapi.json", "/nowhere"]


@pytest.fixture(scope="module")
def guarded(golden: Golden) -> Iterator[TestClient]:
    with console({"basic": golden("basic").path}, token=TOKEN) as client:
        yield client


@pytest.fixture(scope="module")
def open_one(golden: Golden) -> Iterator[TestClient]:
    with console({"basic": golden("basic").path}) as client:
        yield client


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_answered_without_the_token(guarded: TestClient, path: str) -> None:
    guarded.cookies.clear()
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {TOKEN}"}):
        assert guarded.get(path, headers=headers).status_code == 401
    page = guarded.get(path, headers={"accept": "text/html"})
    assert page.status_code == (401 if path.startswith("/api/") else 303)
    assert guarded.get(path, headers={"authorization": f"Bearer {TOKEN}"}).status_code in (200, 404)


def test_health_and_login_are_open(guarded: TestClient) -> None:
    guarded.cookies.clear()
    assert guarded.get("/healthz").status_code == 200
    assert "Enter your token" in guarded.get("/login").text


def test_a_browser_signs_in_and_out(guarded: TestClient) -> None:
    guarded.cookies.clear()
    wanted = guarded.get("/topics?store=basic", headers={"accept": "text/html"}).headers["location"]
    assert wanted == "/login?next=%2Ftopics%3Fstore%3Dbasic"
    assert guarded.post(wanted, data={"token": "wrong"}).status_code == 403
    answer = guarded.post(wanted, data={"token": TOKEN})
    assert (answer.status_code, answer.headers["location"]) == (303, "/topics?store=basic")
    cookie = answer.headers["set-cookie"]
    assert TOKEN not in cookie
    assert {"HttpOnly", "SameSite=strict"} <= set(cookie.split("; "))
    assert guarded.get("/topics").status_code == 200
    assert guarded.post("/logout").status_code == 303
    assert guarded.get("/topics").status_code == 401


def test_a_form_of_another_site_signs_nobody_in(guarded: TestClient) -> None:
    guarded.cookies.clear()
    for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
        answer = guarded.post("/login", data={"token": TOKEN}, headers=headers)
        assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)


@pytest.mark.parametrize(
    "target", ["//evil.example", "/\\evil.example", "https://evil.example", "javascript:x", ""]
)
def test_the_login_leads_only_to_pages_here(target: str) -> None:
    assert own_path(target) == "/"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "",
        "[::2]:8080",
        "[::1].evil",
        "[::1]evil:80",
        "localhost:80.evil",
        "evil@localhost",
        "[::1",
    ],
)
def test_a_foreign_name_for_this_machine_is_refused(open_one: TestClient, host: str) -> None:
    assert open_one.get("/api/topics", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1", "[::1]:8080", "LOCALHOST"])
def test_this_machine_is_known_by_its_names(open_one: TestClient, host: str) -> None:
    assert open_one.get("/api/topics", headers={"host": host}).status_code == 200


def test_with_a_token_or_names_given_other_hosts_are_answered(golden: Golden) -> None:
    stores, asked = {"basic": golden("basic").path}, {"host": "store.example"}
    with console(stores, token=TOKEN) as client:
        client.headers["authorization"] = f"Bearer {TOKEN}"
        assert client.get("/api/topics", headers=asked).status_code == 200
    with console(stores, hosts=["store.example"]) as client:
        assert client.get("/api/topics", headers=asked).status_code == 200
        assert client.get("/api/topics").status_code == 421


def test_other_sites_may_link_here_and_nothing_else(open_one: TestClient) -> None:
    link = {
        "sec-fetch-site": "cross-site",
        "sec-fetch-mode": "navigate",
        "sec-fetch-dest": "document",
    }
    assert open_one.get("/topics", headers=link).status_code == 200
    for foreign in (
        {**link, "sec-fetch-dest": "iframe"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"},
    ):
        assert open_one.get("/api/check", headers=foreign).status_code == 403


def test_answers_allow_no_other_origin_and_nothing_inline(open_one: TestClient) -> None:
    headers = open_one.get("/", headers={"origin": "https://evil.example"}).headers
    assert "access-control-allow-origin" not in headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_everything_is_only_read(open_one: TestClient, method: str) -> None:
    for path in ("/", "/api/messages", "/api/check", "/stores/basic/check"):
        assert open_one.request(method, path).status_code == 405


@pytest.mark.parametrize(
    "path",
    ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd"],
)
def test_static_files_are_all_that_is_served(open_one: TestClient, path: str) -> None:
    assert open_one.get(path).status_code == 404


@pytest.mark.every_case
@pytest.mark.parametrize("digits", ["9" * 4_500, "9" * 20, str(1 << 63)])
@pytest.mark.parametrize("path", ["/messages/{}", "/queues/T/{}", "/api/queues/T/{}"])
def test_a_number_in_a_path_that_does_not_fit_is_a_wrong_argument(
    open_one: TestClient, path: str, digits: str
) -> None:
    assert open_one.get(path.format(digits)).status_code == 400
