"""`reput tail --follow`: new messages while another process, or another thread, writes them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import IO

import pytest

import reput as api
from reput.cli.main import INTERRUPTED, NO_READER
from reput.engine.messages.tail import LogTail, TailFilter
from reput.errors import StoreChangedError
from reput.format.commit_log import encode
from reput.testing.builders import MESSAGE, write_log
from tests.slow import slow_from

SMALL = api.StoreConfig(1 << 15, 50, 64, 300)
WRITER = """
import sys, reput
store = reput.open_store(sys.argv[1], mode="rw", config=reput.StoreConfig(1 << 15, 50, 64, 300))
print("open", flush=True)
for line in sys.stdin:
    first, count = map(int, line.split())
    if not count:
        store.expire(1 << 60)
    store.put_many([
        reput.Message("TU"[n % 2], b"%d" % n + b"." * 200, [f"k{n}"], "ab"[n % 2]) for n in range(first, first + count)
    ])
    store.wait_dispatched()  # so that a test may delete files of the log
    print("put", flush=True)
store.close()
"""


@contextmanager
def writing(store: Path) -> Iterator[Callable[[int, int], None]]:
    """A process that owns a store. On a call, it puts `count` messages from number `first` on, or expires the log."""
    command = [sys.executable, "-c", WRITER, str(store)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None
        assert stdout.readline() == b"open\n"

        def put(first: int, count: int) -> None:
            stdin.write(b"%d %d\n" % (first, count))
            stdin.flush()
            assert stdout.readline() == b"put\n"

        yield put
        stdin.close()
        assert process.wait() == 0


@contextmanager
def following(store: Path, *options: object) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "reput", "tail", str(store), "--follow", *map(str, options)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def output(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdout is not None
    return process.stdout


def numbers(process: subprocess.Popen[bytes], count: int) -> list[int]:
    """Wait for `count` messages, and return their numbers."""
    read = [json.loads(output(process).readline()) for _ in range(count)]
    return [int(message["body"].rstrip(".")) for message in read]


def interrupted(process: subprocess.Popen[bytes]) -> bytes:
    """Return the output after an interrupt; it must end quietly."""
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=600)
    assert (process.returncode, err.strip()) == (INTERRUPTED, b"")
    return out


def test_new_messages_while_another_process_writes_over_many_files(tmp_path: Path) -> None:
    with writing(tmp_path / "s") as put:
        put(0, 20)
        with following(tmp_path / "s", "--format", "jsonl", "-n", 5) as tail:
            assert numbers(tail, 5) == [15, 16, 17, 18, 19]
            done = 20
            for count in (1, 1, 2, 500, 1, 3000):  # each file of 32 KiB holds 90 messages
                put(done, count)
                assert numbers(tail, count) == [*range(done, done + count)]
                done += count
            assert interrupted(tail) == b""
    assert len(list((tmp_path / "s" / "commitlog").iterdir())) > 30


@pytest.mark.slow
def test_a_topic_a_key_and_tags_are_followed(tmp_path: Path) -> None:
    asked: dict[tuple[object, ...], list[int]] = {
        ("--topic", "U"): [1, 3, 5, 7, 9, 11],
        ("--tag", "a || c"): [0, 2, 4, 6, 8, 10],
        ("--key", "k7"): [7],
        ("--topic", "T", "--queue-id", 0, "--key", "k6", "--tag", "*"): [6],
    }
    with writing(tmp_path / "s") as put:
        put(0, 4)
        for first, (options, expected) in enumerate(asked.items()):
            late = [n for n in expected if n < 4] if first == 0 else expected
            with following(tmp_path / "s", "--format", "jsonl", *options, "-n", "all") as tail:
                if first == 0:
                    assert numbers(tail, len(late)) == late
                    put(4, 8)
                    late = [n for n in expected if n >= 4]
                assert numbers(tail, len(late)) == late
                assert interrupted(tail) == b""


@pytest.mark.parametrize("layout", ["text", "csv"])
def test_what_comes_later_has_no_second_header(tmp_path: Path, layout: str) -> None:
    with writing(tmp_path / "s") as put:
        put(0, 2)
        with following(tmp_path / "s", "--format", layout) as tail:
            lines_each = 2 if layout == "text" else 1
            read = [output(tail).readline() for _ in range(1 + 2 * lines_each)]
            put(2, 2)
            read += [output(tail).readline() for _ in range(2 * lines_each)]
            assert interrupted(tail) == b""
    header = b"stored" if layout == "text" else b"topic,"
    assert sum(line.startswith(header) for line in read) == 1
    if layout == "text":
        rows = [line for line in read[1:] if line.startswith(b"20")]
        assert [row.split()[3:5] for row in rows] == [[b"0/0", row.split()[4]] if n < 2 else
            [b"0/1", row.split()[4]] for n, row in enumerate(rows)]  # fmt: skip


@pytest.mark.slow
def test_a_reader_who_goes_away_ends_it_though_nothing_comes(tmp_path: Path) -> None:
    with writing(tmp_path / "s") as put:
        put(0, 1)
        with following(tmp_path / "s", "--format", "jsonl") as tail:
            assert numbers(tail, 1) == [0]
            output(tail).close()
            assert tail.wait() == NO_READER
            assert tail.stderr is not None
            assert tail.stderr.read() == b""


def test_files_that_expire_under_it(tmp_path: Path) -> None:
    store = tmp_path / "s"
    with writing(store) as put:
        put(0, 1000)
        with following(store, "--format", "jsonl", "-n", 1) as tail:
            assert numbers(tail, 1) == [999]
            before = len(list((store / "commitlog").iterdir()))
            put(1000, 0)  # only the owner may delete files of its store
            assert len(list((store / "commitlog").iterdir())) < before
            put(1000, 500)
            assert numbers(tail, 500) == [*range(1000, 1500)]
            assert interrupted(tail) == b""


@pytest.mark.slow
def test_a_busy_writer_is_followed_to_the_last_message(tmp_path: Path) -> None:
    count = 20_000
    with api.open_store(tmp_path / "s", mode="rw", config=SMALL) as store:
        store.put(api.Message("T", b"-1"))
        with following(tmp_path / "s", "--format", "jsonl") as tail:
            assert numbers(tail, 1) == [-1]

            def put_all() -> None:
                for n in range(count):
                    store.put(api.Message("T", b"%d" % n))

            writer = Thread(target=put_all)
            writer.start()
            assert numbers(tail, count) == [*range(count)]
            writer.join()
            assert interrupted(tail) == b""


def test_a_record_in_the_making_is_shown_when_it_is_whole(tmp_path: Path) -> None:
    store = write_log(tmp_path, [MESSAGE] * 2)
    log = next((store / "commitlog").iterdir())
    with log.open("r+b", buffering=0) as file, api.open_store(store) as opened:
        tail = LogTail(opened, TailFilter())
        assert len(tail.last(10)) == 2
        at = tail.position
        first = encode(replace(MESSAGE, body=b"7" * 9, physical_offset=at))
        second = encode(replace(MESSAGE, body=b"8" * 9, physical_offset=at + len(first)))
        for half in (first[: len(first) // 2], first.replace(b"7" * 9, bytes(9))):
            os.pwrite(file.fileno(), half, at)
            assert [*tail.new(), *tail.new(), *tail.new()] == []
        os.pwrite(file.fileno(), first + second, at)
        assert [message.body for message in tail.new()] == [b"7" * 9]
        assert [message.body for message in tail.new()] == [b"8" * 9]
        assert [*tail.new(), *tail.new(), *tail.damage] == []


def test_a_log_that_became_shorter_is_an_error(tmp_path: Path) -> None:
    store = write_log(tmp_path, [MESSAGE])
    with api.open_store(store) as opened:
        tail = LogTail(opened, TailFilter())
        tail.position = 1 << 20
        with pytest.raises(StoreChangedError, match="was read up to 1048576"):
            next(tail.new())


@pytest.mark.parametrize("folder", slow_from(1, ["s/commitlog", "s"]))
def test_a_store_without_a_message_yet_is_waited_for(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir(parents=True)
    with following(tmp_path / "s", "--format", "jsonl") as tail:
        assert tail.stderr is not None
        assert tail.stderr.readline() == waiting_line(tmp_path / "s")
        with writing(tmp_path / "s") as put:
            put(0, 3)
            assert numbers(tail, 3) == [0, 1, 2]
            assert interrupted(tail) == b""


def test_the_wait_for_a_first_message_can_be_interrupted(tmp_path: Path) -> None:
    with following(tmp_path) as tail:
        assert tail.stderr is not None
        assert tail.stderr.readline() == waiting_line(tmp_path)
        assert interrupted(tail) == b""


@pytest.mark.parametrize("place", ["missing", "file"])
def test_what_cannot_become_a_store_is_not_waited_for(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    with following(tmp_path / place) as tail:
        out, err = tail.communicate(timeout=600)
    assert (tail.returncode, out) == (2, b"")
    assert b"not a RocketMQ store" in err


def waiting_line(store: Path) -> bytes:
    return f"reput: {store}: no CommitLog yet; waiting for its first message\n".encode()


def test_several_stores_are_followed_and_one_that_comes_later_joins(tmp_path: Path) -> None:
    first, second, later = (tmp_path / name for name in ("first", "second", "later"))
    with writing(first) as put_first, writing(second) as put_second:
        put_first(0, 1)
        put_second(10, 1)
        options = (second, later, "--format", "jsonl")
        with following(first, *options) as process:
            seen = {json.loads(output(process).readline())["store"] for _ in range(2)}
            assert seen == {str(first), str(second)}
            put_second(11, 1)
            line = json.loads(output(process).readline())
            assert (line["store"], line["keys"]) == (str(second), ["k11"])
            with writing(later) as put_later:
                put_later(20, 1)
                line = json.loads(output(process).readline())
                assert (line["store"], line["keys"]) == (str(later), ["k20"])
            process.send_signal(signal.SIGINT)
            assert process.wait() == INTERRUPTED
            assert process.stderr is not None
            assert b"later: no CommitLog yet" in process.stderr.read()
