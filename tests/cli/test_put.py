"""`reput put`: one message, and many as JSON lines, from files and through pipes."""

import errno
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

import reput as api
from reput.cli import progress as progress_bars
from reput.cli.main import DAMAGED, FAILED, FOUND, INTERRUPTED, WRONG_USE
from reput.cli.put import _is_new
from reput.cli.put_view import PutProgress
from reput.engine.messages import put_lines
from reput.engine.messages.put_lines import LinesReport
from tests.cli.running import SIZES, Ran, one_line, reput, without_compiling
from tests.recovery.checking import check_store
from tests.small import SMALL_64K
from tests.writer.test_failing_disk import failing

COMMAND = [sys.executable, "-m", "reput"]


def piped(data: bytes, *args: object) -> Ran:
    """Run `reput ARGS` in its own process, with `data` piped to its standard input."""
    command = [*COMMAND, *map(str, args)]
    ended = subprocess.run(command, input=data, capture_output=True, timeout=600, check=False)
    return Ran(
        ended.returncode, ended.stdout.decode(), without_compiling(ended.stderr), ended.stdout
    )


def lines(count: int, **fields: object) -> bytes:
    return b"".join(
        json.dumps({"topic": "T", "body": str(n), "keys": [f"k{n}"], **fields}).encode() + b"\n"
        for n in range(count)
    )


def bodies(store: Path) -> list[str]:
    with api.open_store(store) as opened:
        end = opened.max_queue_offset("T", 0)
        return [opened.get_by_queue("T", 0, n).body.decode() for n in range(end)]


def test_one_message_from_options(tmp_path: Path) -> None:
    store = tmp_path / "store"
    ran = reput(
        "put", store, *SIZES, "--topic", "orders", "--body", "h\u00e9llo", "--key", "o-17",
        "--key", "c-3", "--tag", "created", "--queue-id", 2, "--property", "A=b=c",
    )  # fmt: skip
    with api.open_store(store) as opened:
        (message,) = opened.query("orders", "c-3").messages
        assert opened.get_by_queue("orders", 2, 0) == message
    assert message.body.decode() == "h\u00e9llo"
    unique_key = message.properties["UNIQ_KEY"]
    assert message.properties == {
        "KEYS": "o-17 c-3", "TAGS": "created", "A": "b=c", "UNIQ_KEY": unique_key
    }  # fmt: skip
    assert (ran.code, ran.err) == (0, "")
    place = ["orders", "2, entry 0", "0", "7F00000100002A9F0000000000000000", unique_key]
    assert [line[17:] for line in ran.lines[:5]] == place
    check_store(store, SMALL_64K)


def test_one_message_whose_body_is_piped_and_a_program_that_reads_its_place(tmp_path: Path) -> None:
    body = bytes(range(256)) * 9
    for number in range(2):
        ran = piped(body, "put", tmp_path / "s", *SIZES, "--topic", "T", "--format", "json")
        assert (ran.code, ran.err) == (0, "")
        place = json.loads(ran.out)
        with api.open_store(tmp_path / "s") as opened:
            message = opened.get_by_id(place["message_id"])
            assert opened.get_by_id(place["unique_key"]) == message
        assert message.body == body
        assert (place["queue_offset"], place["queue_id"], place["topic"]) == (number, 0, "T")
        assert place["physical_offset"] == message.physical_offset
        assert place["store_timestamp"] == message.store_timestamp


def test_a_body_out_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"from a file\n")
    assert reput("put", tmp_path / "s", tmp_path / "body", *SIZES, "--topic", "T").code == 0
    assert bodies(tmp_path / "s") == ["from a file\n"]


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_lines_through_a_pipe_and_more_out_of_a_file(tmp_path: Path, flush: str) -> None:
    store = tmp_path / "s"
    ran = piped(lines(5000), "put", store, *SIZES, "--flush", flush)
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines[0].startswith("Put 5,000 messages in ")
    assert ran.lines[1] == "  first at      0"
    (tmp_path / "more.jsonl").write_bytes(lines(3)[:-1])  # no newline at its end
    ran = reput("put", store, tmp_path / "more.jsonl", "--format", "json")
    report = json.loads(ran.out)
    assert (report["messages"], report["skipped"]) == (3, 0)
    assert report["first_physical_offset"] > 5000 * 100
    with api.open_store(store) as opened:
        assert opened.end_offset() == report["end_offset"]
        assert opened.get(report["last_physical_offset"]).body == b"2"
    assert bodies(store) == [*map(str, range(5000)), "0", "1", "2"]
    check_store(store, SMALL_64K)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (b"{}\n", "line 4: missing required field `topic`"),
        (b'{"topic":"T","body":"","colour":1}\n', "line 4: unknown field `colour`"),
        (b'{"topic":"a/b","body":""}\n', "line 4: topic 'a/b' cannot be the name of a folder"),
        (lines(1, body="x" * 70_000), "line 4: message of 7"),
        (lines(1, queue_id=1 << 31), "line 4: queue_id 2147483648"),
        (lines(1, flag=1 << 40), "line 4: a number does not fit its field"),
    ],
    ids=lambda value: value[8:30] if isinstance(value, str) else "",
)
def test_a_bad_line(tmp_path: Path, bad: bytes, says: str) -> None:
    file = tmp_path / "x.jsonl"
    file.write_bytes(lines(2) + b"\n" + bad + lines(5) + bad)
    ran = reput("put", tmp_path / "s", file, *SIZES)
    assert (ran.code, ran.out) == (DAMAGED, "")
    assert one_line(ran).startswith(f"reput: {file}: {says}")
    assert one_line(ran).endswith("; stopped after putting 2 messages")
    assert bodies(tmp_path / "s") == ["0", "1"]
    ran = reput("put", tmp_path / "s", file, "--skip-bad")
    assert ran.code == DAMAGED
    assert [line.split(": ")[2] for line in ran.err.splitlines()] == ["line 4", "line 10"]
    assert ran.lines[0].startswith("Put 7 messages in ")
    assert ran.lines[-1] == "  skipped       2 lines"
    assert bodies(tmp_path / "s") == ["0", "1", *"01", *"01234"]


def test_what_was_put_before_a_refused_message_is_not_put_again(tmp_path: Path) -> None:
    config, file = tmp_path / "broker.conf", tmp_path / "x.jsonl"
    config.write_text(
        "mappedFileSizeCommitLog=65536\nmaxHashSlotNum=64\nmaxIndexNum=300\n"
        "enableMultiDispatch=true\nenableLmq=true\n"
    )
    further, bad = ({"INNER_MULTI_DISPATCH": name} for name in ("%LMQ%a", "a/b"))
    file.write_bytes(lines(400, properties=further) + lines(1, properties=bad) + lines(2))
    ran = reput("put", tmp_path / "s", file, "--broker-config", config, "--skip-bad")
    assert ran.code == DAMAGED
    assert ": line 401: topic 'a/b'" in one_line(ran)
    assert ran.lines[0].startswith("Put 402 messages in ")
    assert bodies(tmp_path / "s") == [*map(str, range(400)), "0", "1"]


def test_progress_counts_messages_and_has_a_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    written = io.StringIO()
    terminal = Console(file=written, force_terminal=True, width=100)
    (tmp_path / "x.jsonl").write_bytes(lines(3))
    with (tmp_path / "x.jsonl").open("rb") as file:
        with PutProgress(file) as nobody_watches:
            nobody_watches(10, LinesReport(messages=1))
        assert capfd.readouterr() == ("", "")
        monkeypatch.setattr(progress_bars, "console", lambda stderr: terminal)
        monkeypatch.setattr(progress_bars, "stderr_is_terminal", lambda: True)
        with PutProgress(file) as progress:
            progress(10, LinesReport(messages=1_234))
            progress(20, LinesReport(messages=56_789))
    assert "opening the store" in written.getvalue()
    assert "56,789 messages" in written.getvalue()
    assert "/s" in written.getvalue()


def test_a_line_without_an_end_is_not_waited_for_to_the_end_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(put_lines, "_LONGEST_LINE_BYTES", 2 << 20)
    file = tmp_path / "messages.jsonl"
    file.write_bytes(lines(1) + b" " * (4 << 20))
    ran = reput("put", tmp_path / "s", file, *SIZES)
    assert ran.code == DAMAGED
    assert one_line(ran).startswith(f"reput: {file}: line 2: longer than 2097152 bytes")
    assert bodies(tmp_path / "s") == ["0"]


def test_lines_that_trickle_are_put_as_they_come_and_an_interrupt_says_how_many(
    tmp_path: Path,
) -> None:
    store = tmp_path / "s"
    command = [*COMMAND, "put", str(store), *map(str, SIZES)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(lines(2) + b'{"topic":')
        process.stdin.flush()
        tail = [*COMMAND, "tail", str(store), "--lines", "all", "--follow", "--format", "jsonl"]
        while not (store / "consumequeue" / "T" / "0").exists():
            assert process.poll() is None
        with subprocess.Popen(tail, stdout=subprocess.PIPE) as reader:
            assert reader.stdout is not None
            seen = [json.loads(reader.stdout.readline())["body"] for _ in range(2)]
            reader.stdout.close()
            reader.wait()
        process.send_signal(signal.SIGINT)
        complaint = without_compiling(process.stderr.read())
        assert process.wait() == INTERRUPTED
    assert seen == ["0", "1"]
    assert complaint.strip() == "reput: <stdin>: stopped after putting 2 messages"
    check_store(store, SMALL_64K)


def test_a_store_that_has_an_owner(tmp_path: Path) -> None:
    with api.open_store(tmp_path / "s", mode="rw", config=SMALL_64K):
        ran = piped(b"", "put", tmp_path / "s", "--topic", "T")
    assert ran.code == FAILED
    assert "owns this store" in one_line(ran)


def test_a_store_that_was_not_closed_in_order_is_recovered_and_says_so(tmp_path: Path) -> None:
    code = (
        "import os, reput; "
        f"s = reput.open_store({str(tmp_path)!r}, mode='rw', config=reput.{SMALL_64K!r}); "
        "s.put(reput.Message('T', b'0')); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code], env=os.environ).returncode == 9
    ran = reput("put", tmp_path, "--topic", "T", "--body", "1")
    assert ran.code == 0
    assert "recovered: " in one_line(ran)
    assert bodies(tmp_path) == ["0", "1"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--key", "k"], "need --topic"),
        (["--body", "b"], "need --topic"),
        (["--topic", "T", "--property", "novalue", "--body", ""], "--property: write NAME=VALUE"),
        (["--topic", "T", "--key", "a b", "--body", ""], "or contain spaces"),
        (["--topic", "a/b", "--body", ""], "cannot be the name of a folder"),
        (["/no/such/file"], "/no/such/file"),
        (["--log-file-size", "many", "--topic", "T", "--body", ""], "'many' is not a size"),
        (["--broker-config", "/no/conf", "--topic", "T", "--body", ""], "/no/conf"),
    ],
)
def test_options_that_cannot_be_right(tmp_path: Path, options: list[str], says: str) -> None:
    ran = reput("put", tmp_path / "s", *options, *([] if "--log-file-size" in options else SIZES))
    assert (ran.code, ran.out) == (WRONG_USE, "")
    assert says in one_line(ran)


def test_sizes_are_those_of_the_store_that_is_there(tmp_path: Path) -> None:
    one = ("--topic", "T", "--body", "b")
    assert reput("put", tmp_path / "s", *SIZES, *one).code == 0
    assert reput("put", tmp_path / "s", "--queue-entries", 50, *one).code == 0
    check_store(tmp_path / "s", SMALL_64K)
    ran = reput("put", tmp_path / "s", "--log-file-size", "128KiB", *one)
    assert ran.code == FAILED
    assert "its CommitLog files have 65536 bytes" in one_line(ran)
    config = tmp_path / "broker.conf"
    config.write_text("mappedFileSizeCommitLog=65536\nmaxHashSlotNum=64\nmaxIndexNum=300\n")
    assert reput("put", tmp_path / "t", "--broker-config", config, *one).code == 0
    assert (tmp_path / "t" / "commitlog" / f"{0:020d}").stat().st_size == 65536


def _sizes(store: Path) -> list[int]:
    folders = ("commitlog", "consumequeue/T/0", "index")
    return [next((store / folder).iterdir()).stat().st_size for folder in folders]


def test_a_new_store_has_small_files_and_the_command_says_so(tmp_path: Path) -> None:
    store = tmp_path / "store"
    first = reput("put", store, "--topic", "T", "--body", "x", "--key", "k")
    assert "created with small files: CommitLog 16 MiB" in one_line(first)
    assert _sizes(store) == [16 << 20, 200_000, 40 + 4 * 100_000 + 20 * 400_000]
    assert reput("put", store, "--topic", "T", "--body", "x").err == ""


def test_a_store_for_a_broker_has_the_broker_s_sizes(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text(
        "mappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=2000\nmaxHashSlotNum=10\nmaxIndexNum=40\n"
    )
    options = ("--topic", "T", "--body", "x", "--key", "k")
    configured = reput("put", tmp_path / "a", *options, "--broker-config", config)
    sized = reput("put", tmp_path / "b", *options, *SIZES)
    assert configured.err == sized.err == ""
    assert _sizes(tmp_path / "a") == [65536, 2000, 40 + 4 * 10 + 20 * 40]
    assert _sizes(tmp_path / "b") == [65536, 1000, 40 + 4 * 64 + 20 * 300]
    # A folder with a file may belong to a broker, which expects its default sizes.
    (tmp_path / "c" / "config").mkdir(parents=True)
    assert not _is_new(str(tmp_path / "c"))


def test_a_full_disk_is_one_line_and_leaves_the_store_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    # The next message needs the next log file.
    assert reput("put", store, "--topic", "T", "--body", "x" * 64_000, *SIZES).code == FOUND

    def content() -> dict[Path, bytes]:
        files = {file: file.read_bytes() for file in store.rglob("*") if file.is_file()}
        # It has the time of the last shutdown.
        known = json.loads(files.pop(store / "reput.known"))
        del known["last_files"]
        return {**files, store / "reput.known": json.dumps(known).encode()}

    before = content()
    with failing(monkeypatch, "posix_fallocate", errno.ENOSPC, lambda name: "commitlog" in name):
        ran = reput("put", store, "--topic", "T", "--body", "y" * 5000)
    assert ran.code == FAILED
    assert "No space left on device" in one_line(ran)
    assert not (store / "abort").exists()
    after = content()
    assert {file: after[file] for file in before} == before
    assert reput("put", store, "--topic", "T", "--body", "y" * 5000).code == FOUND
    assert reput("check", store).code == FOUND
