"""Stores that fail under the server: it reports it, loses nothing acknowledged, and never answers "not found"."""

import errno
import shutil
import struct
from pathlib import Path

import pytest

from reput import Message, open_store
from reput.errors import StoreFailedError
from reput.wings.serve.remoting.commands import ResponseCode
from reput.wings.serve.remoting.requests import RequestCode
from tests.remoting.client import Client, messages, serving
from tests.small import SMALL
from tests.waiting import wait_for
from tests.writer.test_failing_disk import failing

NOT_FOUND = (ResponseCode.QUERY_NOT_FOUND, ResponseCode.PULL_NOT_FOUND)


def test_a_damaged_record_is_an_error_and_not_missing(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", mode="rw", config=SMALL) as made:
        offsets = [made.put(Message("T", b"x" * 100, keys=["k"])).physical_offset for _ in range(3)]
    (log,) = (tmp_path / "store" / "commitlog").iterdir()
    with log.open("r+b") as file:
        file.seek(offsets[1] + 84)  # the field with the body's length
        file.write(struct.pack(">i", 1 << 30))
    with serving(tmp_path / "store") as running, Client(running.address) as client:
        view = client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offsets[1]})
        assert view.code == ResponseCode.SYSTEM_ERROR
        assert "can not find" not in (view.remark or "")
        good = client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offsets[0]})
        assert [each.physical_offset for each in messages(good.body)] == [offsets[0]]


def test_a_full_disk_refuses_sends_answers_reads_and_takes_messages_once_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[bytes] = []
    with (
        serving(tmp_path / "store", sends=True, is_synced=True) as running,
        Client(running.address) as client,
    ):

        def send() -> int:
            body = b"%d" % len(sent) + bytes(10_000)
            answer = client.put("T", body, {"KEYS": f"k{len(sent)}", "UNIQ_KEY": f"u{len(sent)}"})
            if answer.code == ResponseCode.SUCCESS:
                sent.append(body)
            return answer.code

        assert send() == ResponseCode.SUCCESS
        with failing(
            monkeypatch, "posix_fallocate", errno.ENOSPC, lambda name: "commitlog" in name
        ):
            while (code := send()) == ResponseCode.SUCCESS:
                assert len(sent) < 200
            assert code == ResponseCode.SERVICE_NOT_AVAILABLE
            refused = client.put("T", bytes(10_000))
            assert "free some space" in (refused.remark or "")
            wait_for(lambda: messages(client.query("T", f"k{len(sent) - 1}").body))
            assert client.pull("T", 0, 0).code == ResponseCode.SUCCESS
        assert send() == ResponseCode.SUCCESS
    with open_store(tmp_path / "store") as store:
        stored = [
            store.get_by_queue("T", 0, at).body for at in range(store.max_queue_offset("T", 0))
        ]
    assert stored == sent


def test_topics_and_offsets_that_cannot_be_written_are_kept_and_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = {"consumerGroup": "g", "topic": "T", "queueId": 0}
    with (
        serving(tmp_path / "store", sends=True) as running,
        Client(running.address) as client,
    ):
        assert client.put("T", b"x").code == ResponseCode.SUCCESS
        with failing(monkeypatch, "replace", errno.ENOSPC, lambda name: "/config/" in name):
            client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**place, "commitOffset": 1})
            refused = client.put("new", b"x")
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "No space left" in (refused.remark or "")
            assert client.put("T", b"y").code == ResponseCode.SUCCESS
        assert client.put("new", b"x").code == ResponseCode.SUCCESS
    with serving(tmp_path / "store", sends=True) as running, Client(running.address) as client:
        assert client.ask(RequestCode.QUERY_CONSUMER_OFFSET, place).fields["offset"] == "1"
        assert client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "new"}).code == 0


def test_a_store_that_is_deleted_is_gone_and_comes_back(tmp_path: Path) -> None:
    with open_store(tmp_path / "kept" / "a", mode="rw", config=SMALL) as store:
        store.put_many(Message("T", b"%d" % n, keys=["k"]) for n in range(100))
    served = tmp_path / "served"
    shutil.copytree(tmp_path / "kept", served)
    with serving(served) as running, Client(running.address) as client:
        assert client.query("T", "k").code == ResponseCode.SUCCESS
        shutil.rmtree(served / "a")

        def is_gone() -> bool:
            answers = [
                client.query("T", "k"),
                client.query("T", "nothing has this"),
                client.pull("T", 0, 0),
                client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": 0}),
                client.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "T"}),
            ]
            return all(each.code == ResponseCode.SERVICE_NOT_AVAILABLE for each in answers)

        wait_for(is_gone)
        route = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
        assert route.code == ResponseCode.TOPIC_NOT_EXIST
        shutil.copytree(tmp_path / "kept", served, dirs_exist_ok=True)
        wait_for(lambda: client.query("T", "k").code == ResponseCode.SUCCESS)


def test_a_writable_store_that_is_deleted_does_not_stop_the_server(tmp_path: Path) -> None:
    def serve() -> None:
        with serving(tmp_path / "store", sends=True) as running, Client(running.address) as client:
            assert client.put("T", bytes(1000)).code == ResponseCode.SUCCESS
            shutil.rmtree(tmp_path / "store")
            wait_for(lambda: client.put("T", bytes(1000)).code != ResponseCode.SUCCESS)
            assert client.put("T", b"x").code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert client.query("T", "k").code not in NOT_FOUND

    with pytest.raises(
        StoreFailedError, match=r"no longer exists|deleted or renamed|cannot be synced"
    ):
        serve()
