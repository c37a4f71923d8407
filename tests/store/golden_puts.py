"""The messages of a golden store, to be put again."""

from collections.abc import Callable, Iterator
from pathlib import Path

from reput.config import StoreConfig
from reput.files.disk import Disk
from reput.format.host import Host
from reput.format.unique_key import UniqueKeys
from reput.store.health import Health
from reput.store.put.commit_log_writer import CommitLogWriter
from reput.store.put.log_files import LogFiles
from reput.store.put.message import Message
from tests.golden.stores import GoldenStore
from tests.golden.tables import MessageRow

STORE_HOST = Host("127.0.0.1", 10911)


def store_config(store: GoldenStore) -> StoreConfig:
    return StoreConfig.from_broker_settings(store.config)


def bodies(store: GoldenStore) -> dict[int, bytes]:
    """Body by physical offset, cut out by the lengths that the table has."""
    log = b"".join(path.read_bytes() for path in sorted((store.path / "commitlog").iterdir()))
    found = {}
    for row in store.messages:
        tail = len(row.topic.encode()) + 1 + len(row.properties.encode("utf-8", "replace")) + 2
        end = row.physical_offset + row.size - tail
        found[row.physical_offset] = log[end - row.body_length : end]
    return found


def host(text: str) -> Host:
    address, _, port = text.rpartition(":")
    return Host(address.strip("[]"), int(port))


def message(row: MessageRow, body: bytes, properties: dict[str, str] | str) -> Message:
    return Message(
        topic=row.topic,
        body=body,
        queue_id=row.queue_id,
        properties=properties,
        flag=row.flag,
        sys_flag=row.sys_flag,
        born_timestamp=row.born_timestamp,
        born_host=host(row.born_host),
        reconsume_times=row.reconsume_times,
        prepared_transaction_offset=row.prepared_transaction_offset,
    )


class GoldenClock:
    """The store timestamps of a golden store, one a message."""

    def __init__(self, store: GoldenStore) -> None:
        self._times: Iterator[int] = iter([row.store_timestamp for row in store.messages])

    def __call__(self) -> int:
        return next(self._times)


def new_writer(
    folder: Path, config: StoreConfig, clock: Callable[[], int], store_host: Host = STORE_HOST
) -> CommitLogWriter:
    """The writer of a new CommitLog in `folder`."""
    folder.mkdir(parents=True)
    return CommitLogWriter(
        files=LogFiles(Disk(), folder, config.commit_log_file_bytes, 0),
        position=0,
        queue_offsets={},
        config=config,
        health=Health(),
        unique_keys=UniqueKeys("0A" * 10),
        store_host=store_host,
        clock_ms=clock,
        on_append=lambda end: None,
    )
