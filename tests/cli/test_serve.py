"""`reput serve`: its output, its end, its errors."""

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from reput import Message, open_store
from reput.format.host import Host
from reput.wings.serve.remoting.commands import ResponseCode
from reput.wings.serve.remoting.requests import RequestCode
from tests.cli.running import REPUT, one_line, reput
from tests.remoting.client import Client, messages
from tests.small import SMALL
from tests.waiting import wait_for


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with open_store(tmp_path / "shop", mode="rw", config=SMALL) as made:
        made.put(Message("orders", b"x", keys=["k"]))
    return tmp_path / "shop"


def test_it_serves_until_a_signal_and_answers_what_is_under_way(store: Path) -> None:
    process = subprocess.Popen(
        [REPUT, "serve", store, "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(5)]
    address, path, name = lines[0].split()
    assert (path, name) == (str(store), "(shop)")
    assert lines[1] == "Try:\n"
    assert all(line.startswith("  mqadmin ") for line in lines[2:])
    host, _, number = address.rpartition(":")
    with Client(Host(host, int(number))) as client:
        assert [each.body for each in messages(client.query("orders", "k").body)] == [b"x"]
        beat = client.ask(RequestCode.HEART_BEAT, {}, b'{"clientID":"c"}').code
        assert beat == ResponseCode.SUCCESS  # the main process takes the connection back
        fields = {
            "consumerGroup": "g", "topic": "orders", "queueId": 0, "queueOffset": 1, "maxMsgNums": 1, "sysFlag": 6,
            "commitOffset": 0, "suspendTimeoutMillis": 30_000, "subscription": "*", "subVersion": 0,
        }  # fmt: skip
        waiting = client.send(RequestCode.PULL_MESSAGE, fields)
        # The server reads requests in order: once this one is answered, it has the pull.
        client.ask(RequestCode.HEART_BEAT, {}, b'{"clientID":"c"}')
        process.send_signal(signal.SIGTERM)
        answer = client.receive()
        assert (answer.opaque, answer.code) == (waiting, ResponseCode.PULL_NOT_FOUND)
    assert process.wait() == 0
    process.stdout.close()


def test_it_shows_its_stores_over_http_to_who_has_the_token(store: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    process = subprocess.Popen(
        [
            REPUT, "serve", store, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
            "--http-token-file", tmp_path / "token",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(6)]
    url, said = lines[1].split(maxsplit=1)
    assert said == "in a browser\n"
    with httpx.Client(base_url=url, trust_env=False) as client:
        assert client.get("/api/stores").status_code == 401
        client.headers["authorization"] = "Bearer secret"
        assert [each["store"] for each in client.get("/api/stores").json()["stores"]] == ["shop"]
        asked = client.get("/api/messages", params={"topic": "orders", "key": "k"})
        assert [each["queue_offset"] for each in asked.json()["messages"]] == [0]
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 0
    process.stdout.close()


def test_a_hangup_closes_an_owned_store_cleanly(store: Path) -> None:
    process = subprocess.Popen(
        [REPUT, "serve", store, "--listen", "127.0.0.1:0", "--accept-sends"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    assert (store / "abort").exists()
    process.send_signal(signal.SIGHUP)
    assert process.wait() == 0
    process.stdout.close()
    assert not (store / "abort").exists()


def test_systemd_is_told_when_it_is_ready_and_when_it_stops(store: Path, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(tmp_path / "notify"))
        told.settimeout(60)
        process = subprocess.Popen(
            [REPUT, "serve", store, "--listen", "127.0.0.1:0"],
            stdout=subprocess.DEVNULL,
            env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")},
        )
        assert told.recv(100) == b"READY=1"
        process.send_signal(signal.SIGTERM)
        assert told.recv(100) == b"STOPPING=1"
        assert process.wait() == 0


def test_a_certificate_covers_pages_too(store: Path, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout key.pem -out cert.pem"
    subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True)
    process = subprocess.Popen(
        [
            REPUT, "serve", store, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
            "--tls-cert", tmp_path / "cert.pem", "--tls-key", tmp_path / "key.pem",
            "--http-host", "reput.example", "--audit-log", tmp_path / "audit.jsonl",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(6)]
    url = lines[1].split()[0]
    assert url.startswith("https://")
    with httpx.Client(base_url=url, trust_env=False, verify=False) as client:
        assert client.get("/readyz").status_code == 200
        for host, status in {"reput.example": 200, "other.example": 421}.items():
            assert client.get("/metrics", headers={"host": host}).status_code == status
        client.get("/api/messages?key=k&topic=orders")
    with httpx.Client(trust_env=False) as client, pytest.raises(httpx.HTTPError):
        client.get(url.replace("https", "http") + "readyz")
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 0
    process.stdout.close()
    # A line is written after its answer was sent, so only the end of the process guarantees that the line exists.
    audit = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [(one["path"], one["key"], one["status"]) for one in audit] == [
        ("/api/messages", "k", 200)
    ]


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--listen", "9876"], "--listen '9876': write HOST:PORT, such as 127.0.0.1:9876"),
        (["--http", "8080"], "--http '8080': write HOST:PORT, such as 127.0.0.1:9876"),
        (["--http-host", "name"], "--http-host needs --http"),
        (["--http-only"], "--http-only needs --http"),
        (
            ["--http-only", "--http", "127.0.0.1:0", "--accept-sends"],
            "cannot be combined with --accept-sends",
        ),
        (["--http-token-file", "token"], "--http-token-file needs --http"),
        (["--http", "127.0.0.1:0", "--http-token-file", "/dev/null"], "/dev/null"),
        (["--workers", "2"], "--workers was removed"),
        (["--acl", "FILE", "--http", "127.0.0.1:0"], "also pass --http-token-file"),
        (["--flush", "sync"], "--flush needs --accept-sends"),
        (["--tls-key", "key.pem"], "--tls-key needs --tls-cert"),
        (["--tls-cert", "no-such.pem"], "--tls-cert no-such.pem: No such file"),
        (["--acl", "no-such.yml"], "no-such.yml"),
    ],
)
def test_options_that_cannot_be_right_are_named(
    store: Path, options: list[str], reason: str
) -> None:
    ran = reput("serve", store, *options)
    assert ran.code in (2, 4)
    assert reason in one_line(ran)


def test_an_address_in_use_is_one_line(store: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = reput("serve", store, "--listen", f"127.0.0.1:{port}")
    assert ran.code == 4
    assert f"127.0.0.1:{port}: cannot listen there" in one_line(ran)


@pytest.mark.slow
def test_two_thousand_idle_connections_cost_little_and_hold_nobody_up(store: Path) -> None:
    least, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    process = subprocess.Popen(
        [REPUT, "serve", store, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1024, most)),
    )  # fmt: skip
    assert process.stdout is not None
    host, _, number = process.stdout.readline().split()[0].rpartition(":")
    address = Host(host, int(number))
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        with ExitStack() as stack:
            for _ in range(2000):
                stack.enter_context(socket.create_connection(address, 30))
            with Client(address) as client:
                for _ in range(100):
                    assert client.query("orders", "k").code == ResponseCode.SUCCESS
            rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
            private = [line.split() for line in rollup.splitlines() if line.startswith("Private_")]
            assert sum(int(line[1]) for line in private) < 300 << 10  # private memory, in KiB
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (least, most))
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
        process.stdout.close()


def test_stores_of_a_fleet_file_are_served_by_their_names_and_replicas_once(
    store: Path, tmp_path: Path
) -> None:
    shutil.copytree(store, tmp_path / "slave")
    (tmp_path / "shop.conf").write_text(
        f"brokerClusterName=c\nbrokerName=b\nmaxHashSlotNum={SMALL.hash_slots}\n"
        f"maxIndexNum={SMALL.index_items}\n"
    )
    (tmp_path / "fleet.toml").write_text(
        '[[store]]\nname = "replica"\npath = "slave"\ncluster = "c"\nbroker = "b"\nbroker_id = 1\n'
        '[[store]]\nname = "the shop"\npath = "shop"\nconfig = "shop.conf"\nbroker_id = 0\n'
        '[[store]]\nname = "gone"\npath = "gone"\n'
    )
    process = subprocess.Popen(
        [
            REPUT, "serve", "--stores", tmp_path / "fleet.toml", "--listen", "127.0.0.1:0",
            "--http", "127.0.0.1:0",
        ],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    lines = [process.stdout.readline() for _ in range(2)]
    assert lines[0].split(maxsplit=2)[1:] == [str(tmp_path / "shop"), "(the-shop)\n"]
    with httpx.Client(base_url=lines[1].split()[0], trust_env=False) as client:
        assert client.get("/readyz").status_code == 503
        assert 'reput_store_up{store="gone"} 0.0' in client.get("/metrics").text
        found = client.get("/api/messages", params={"key": "k", "store": "the-shop"}).json()
        assert len(found["messages"]) == 1
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 0
    said = process.stderr.read()
    assert "reput: replica: a replica of the shop: not served" in said
    process.stdout.close()
    process.stderr.close()


def test_a_fleet_file_that_cannot_be_served_is_one_line(tmp_path: Path) -> None:
    assert "name a STORE, or a fleet file" in one_line(reput("serve"))
    (tmp_path / "fleet.toml").write_text('[[store]]\npath = "x"\nconfig = "gone.conf"\n')
    ran = reput("serve", "--stores", tmp_path / "fleet.toml", "--listen", "127.0.0.1:0")
    assert "gone.conf" in one_line(ran)


def test_requests_of_clients_are_in_metrics_and_in_the_audit(store: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [
            REPUT, "serve", store, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
            "--audit-log", tmp_path / "audit.jsonl",
        ],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(2)]
    host, _, number = lines[0].split()[0].rpartition(":")
    pull = {
        "consumerGroup": "g", "topic": "orders", "queueId": 0, "maxMsgNums": 1, "sysFlag": 4,
        "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
    }  # fmt: skip
    with Client(Host(host, int(number))) as client:
        client.query("orders", "k")
        client.ask(RequestCode.PULL_MESSAGE, {**pull, "queueOffset": 0})
        client.ask(RequestCode.PULL_MESSAGE, {**pull, "queueOffset": 1})
        client.ask(RequestCode.HEART_BEAT, {}, b'{"clientID":"c"}')
        client.ask(31_999, {})
        with httpx.Client(base_url=lines[1].split()[0], trust_env=False) as pages:
            text = pages.get("/metrics").text
    wanted = {
        ("QUERY_MESSAGE", "SUCCESS"): 1, ("PULL_MESSAGE", "SUCCESS"): 1,
        ("PULL_MESSAGE", "PULL_NOT_FOUND"): 1, ("HEART_BEAT", "SUCCESS"): 1,
        ("other", "REQUEST_CODE_NOT_SUPPORTED"): 1,
    }  # fmt: skip
    for (request, outcome), count in wanted.items():
        labels = f'outcome="{outcome}",request="{request}"'
        assert f"reput_remoting_requests_total{{{labels}}} {count:.1f}" in text
    assert 'reput_remoting_request_seconds_count{request="QUERY_MESSAGE"} 1.0' in text
    assert "reput_remoting_connections 1.0" in text
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 0
    process.stdout.close()
    audit = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    found = [(one["request"], one.get("topic"), one.get("key"), one["outcome"]) for one in audit]
    assert found == [
        ("QUERY_MESSAGE", "orders", "k", "SUCCESS"),
        ("PULL_MESSAGE", "orders", None, "SUCCESS"),
        ("other", None, None, "REQUEST_CODE_NOT_SUPPORTED"),
    ]
    assert {one["client"] for one in audit} == {"127.0.0.1"}
    assert audit[1]["group"] == "g"


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="reads /proc")
def test_the_container_s_health_check_asks_the_server_where_it_listens(store: Path) -> None:
    script = Path(__file__).parents[2] / "packaging" / "healthcheck.py"

    def is_healthy(process: int) -> bool:
        return subprocess.run([sys.executable, script, str(process)]).returncode == 0

    def started(*options: str) -> subprocess.Popen[str]:
        """Start a server whose command states its ports. Try until nobody else has taken them."""
        while True:
            with (
                socket.create_server(("127.0.0.1", 0)) as free,
                socket.create_server(("127.0.0.1", 0)) as other,
            ):
                ports = [each.getsockname()[1] for each in (free, other)]
            process = subprocess.Popen(
                [sys.executable, REPUT, "serve", store, *(text.format(*ports) for text in options)],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            )  # fmt: skip
            assert process.stdout is not None
            if process.stdout.readline():
                return process
            process.communicate()

    for options in (["--listen", "0.0.0.0:{0}", "--http=0.0.0.0:{1}"], ["--listen=127.0.0.1:{0}"]):
        process = started(*options)
        assert process.stdout is not None
        assert is_healthy(process.pid)
        process.send_signal(signal.SIGSTOP)
        # the kernel accepts connections for the stopped process
        assert is_healthy(process.pid) == (len(options) == 1)
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
        process.stdout.close()
    assert is_healthy(os.getpid())  # this process is another command
    asleep = [sys.executable, "-c", "input()", "serve", "--listen=127.0.0.1:1"]
    with subprocess.Popen(asleep, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as nobody:
        assert not is_healthy(nobody.pid)
        assert nobody.stdin is not None
        nobody.stdin.close()


def test_pages_alone_need_no_address_for_each_store(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store, tmp_path / "other")
    process = subprocess.Popen(
        [REPUT, "serve", store, tmp_path / "other", "--http", "127.0.0.1:0", "--http-only"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(3)]
    assert lines[:2] == [f"{store}  (shop)\n", f"{tmp_path / 'other'}  (other)\n"]
    with httpx.Client(base_url=lines[2].split()[0], trust_env=False) as client:
        assert client.get("/readyz").json() == {"status": "ok", "stores": 2}
        for name in ("shop", "other"):
            found = client.get("/api/messages", params={"key": "k", "store": name}).json()
            assert len(found["messages"]) == 1
        shutil.rmtree(tmp_path / "other")
        wait_for(lambda: client.get("/readyz").status_code == 503)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 0
    assert process.stdout.read() == ""
    process.stdout.close()
