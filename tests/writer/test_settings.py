"""Settings of a writable store: given, or from a broker's configuration, and their effects."""

import logging
import os
import threading
import time
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import get_type_hints

import pytest

import reput
from reput.base.config import StoreConfig
from reput.engine.writer.writer_settings import (
    WITHOUT_COUNTERPART,
    BrokerSettings,
    WriterOptions,
    WriterSettings,
)
from reput.errors import UsageError
from tests.waiting import wait_for

Message = reput.Message
CONF = """
brokerName=broker-a
flushDiskType=SYNC_FLUSH
flushIntervalCommitLog=200
flushCommitLogLeastPages=7
flushCommitLogThoroughInterval=3000
flushIntervalConsumeQueue=1500
flushConsumeQueueLeastPages=5
flushConsumeQueueThoroughInterval=30000
cleanResourceInterval=20000
fileReservedTime=48
deleteWhen=04;16
diskMaxUsedSpaceRatio=88
messageDelayLevel=1s 2s
maxMessageSize=2000
mappedFileSizeCommitLog=65536
maxHashSlotNum=64
maxIndexNum=300
mappedFileSizeConsumeQueue=1000
transientStorePoolEnable=true
haListenPort=10912
"""


def test_a_broker_configuration_is_honoured(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(CONF)
    with (
        caplog.at_level(logging.WARNING, "reput"),
        reput.open_store(tmp_path / "store", mode="rw", broker_config=conf) as store,
    ):
        settings = store._writer.settings
        assert settings == WriterSettings(
            flush="sync",
            flush_interval_commit_log_s=0.2,
            flush_commit_log_least_pages=7,
            flush_commit_log_thorough_interval_s=3.0,
            flush_interval_consume_queue_s=1.5,
            flush_consume_queue_least_pages=5,
            flush_consume_queue_thorough_interval_s=30.0,
            clean_resource_interval_s=20.0,
            file_reserved_hours=48,
            delete_when="04;16",
            disk_max_used_space_ratio=88,
        )
        syncs = store.syncs
        put = store.put(Message("T", b"x", properties={"DELAY": "9"}))
        assert store.syncs > syncs  # the message was durable when put returned
        assert store.get(put.physical_offset).queue_id == 1  # level 9 becomes the last one, 2
        with pytest.raises(reput.errors.MessageRefusedError, match="2000"):
            store.put(Message("T", bytes(2000)))
        assert store.ignored_settings == ("haListenPort", "transientStorePoolEnable")
    assert "not used: haListenPort, transientStorePoolEnable" in caplog.text


def test_what_is_given_goes_before_the_configuration(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(CONF)
    with reput.open_store(
        tmp_path / "store", mode="rw", broker_config=conf, flush="async", file_reserved_hours=1
    ) as store:
        settings = store._writer.settings
        assert (settings.flush, settings.file_reserved_hours) == ("async", 1)
        assert settings.flush_commit_log_least_pages == 7


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("flushDiskType=NEVER", "flushDiskType"),
        ("flushIntervalCommitLog=x", "flushIntervalCommitLog"),
        ("deleteWhen=25", "delete_when"),
        ("flushConsumeQueueLeastPages=-1", "flush_consume_queue_least_pages"),
    ],
)
def test_a_configuration_that_cannot_be_right_is_named(
    tmp_path: Path, line: str, name: str
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(line)
    with pytest.raises(UsageError, match=f"broker.conf: {name} must be"):
        reput.open_store(tmp_path / "store", mode="rw", broker_config=conf)
    assert not (tmp_path / "store").exists()


def test_a_setting_is_used_or_has_no_counterpart() -> None:
    used = BrokerSettings.of({"flushIntervalCommitLog": "1"})
    assert used.ignored == ()
    assert BrokerSettings.of(dict.fromkeys(WITHOUT_COUNTERPART, "1")).ignored == tuple(
        sorted(WITHOUT_COUNTERPART)
    )


def test_files_go_by_their_age_at_the_hours_that_are_set(tmp_path: Path) -> None:
    small = StoreConfig(1 << 14, 50, 64, 300)
    hour = datetime.now().astimezone().hour
    for delete_when, goes in (
        (f"{(hour + 3) % 24:02}", False),
        (f"{hour:02};{(hour + 1) % 24}", True),
    ):
        with reput.open_store(
            tmp_path / "store", mode="rw", config=small, file_reserved_hours=0,
            delete_when=delete_when,
        ) as store:  # fmt: skip
            for number in range(60):
                store.put(Message("T", bytes(1000), [str(number)]))
            store.wait_dispatched()
            time.sleep(0.01)
            report = store._writer.retention.clean()
            assert bool(report and report.log_files) == goes


def seen_syncs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record which files are synced, in order."""
    names: list[str] = []
    fdatasync = os.fdatasync

    def note(descriptor: int) -> None:
        names.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fdatasync(descriptor)

    monkeypatch.setattr(os, "fdatasync", note)
    return names


QUEUES = StoreConfig(1 << 22, 2_000, 64, 100)


def test_a_queue_is_flushed_once_two_of_its_pages_are_dirty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reput.open_store(
        tmp_path / "store", mode="rw", config=QUEUES, flush_interval_consume_queue_s=0.02
    ) as store:
        names = seen_syncs(monkeypatch)
        store.put_many([Message("few", b"x", properties="")] * 200)
        store.put_many([Message("many", b"x", properties="")] * 500)
        wait_for(lambda: any("/many/" in name for name in names))
        assert not any("/few/" in name for name in names)
        store.put_many([Message("few", b"x", properties="")] * 300)
        wait_for(lambda: any("/few/" in name for name in names))


def test_a_full_index_file_is_flushed_when_the_next_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(threading.enumerate())
    with reput.open_store(
        tmp_path / "store", mode="rw", config=QUEUES, flush_interval_consume_queue_s=600
    ) as store:
        names = seen_syncs(monkeypatch)
        store.put_many([Message("T", b"x", [str(n)]) for n in range(40)])
        assert store.wait_dispatched()
        assert not any("/index/" in name for name in names)
        store.put_many([Message("T", b"x", [str(n)]) for n in range(40)])
        wait_for(lambda: any("/index/" in name for name in names))
        full = sorted((tmp_path / "store" / "index").iterdir())[0]
        wait_for(lambda: store.checkpoint().index_msg_timestamp > 0)
        assert {name for name in names if "/index/" in name} == {str(full)}
    assert set(threading.enumerate()) <= before


def test_open_store_is_typed_with_every_setting() -> None:
    assert list(get_type_hints(WriterOptions)) == [field.name for field in fields(WriterSettings)]
