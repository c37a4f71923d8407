"""The messages of a golden store, to be put again in the same way."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from ipaddress import ip_address
from itertools import groupby
from pathlib import Path

from reput.base.config import StoreConfig
from reput.core.store.facts import facts_of
from reput.engine.writer.put.commit_log_writer import CommitLogWriter
from reput.engine.writer.put.log_files import LogFiles
from reput.engine.writer.put.message import Message
from reput.engine.writer.store_writer import StoreWriter, WriterSettings
from reput.engine.writer.threads import Health
from reput.format.host import Host
from reput.format.message_id import UniqueKeys
from reput.format.properties import UNIQ_KEY, decode_properties, encode_properties
from reput.io.disk import Disk
from tests.golden.stores import GoldenStore
from tests.oracle.records import Record, decode

MADE_BY_THE_STORE = ("INNER_MULTI_QUEUE_OFFSET", "INNER_BASE", "__CRC32#")
STORE_HOST = Host("127.0.0.1", 10911)


@dataclass(frozen=True)
class GoldenPut:
    """One put, of a message or of a batch, and the record of each message."""

    messages: list[Message]
    records: list[Record]
    is_batch: bool

    @property
    def time_ms(self) -> int:
        return self.records[0].store_timestamp

    @property
    def store_host(self) -> Host:
        return _host(self.records[0].store_host)


def store_config(store: GoldenStore) -> StoreConfig:
    config = StoreConfig.from_broker_settings(store.config)
    return replace(config, store_version="5.3" if is_five(store) else "4.9")


def is_five(store: GoldenStore) -> bool:
    return store.name.startswith("five")


def golden_records(store: GoldenStore) -> Iterator[Record]:
    """Return every record, in CommitLog order."""
    file_bytes = store.commit_log_file_bytes
    for number, rows in groupby(store.messages, lambda row: row.physical_offset // file_bytes):
        data = (store.path / "commitlog" / f"{number * file_bytes:020d}").read_bytes()
        for row in rows:
            record = decode(data, row.physical_offset % file_bytes)
            assert isinstance(record, Record)
            yield record


def golden_puts(store: GoldenStore) -> Iterator[GoldenPut]:
    """Return every put that was stored. The table of puts shows which ones were batches."""
    batches = {
        put.physical_offset: put.message_id.count(",") + 1 for put in store.puts if put.message_id
    }
    records = golden_records(store)
    for first in records:
        count = batches.get(first.physical_offset, 1)
        of_put = [first, *(next(records) for _ in range(count - 1))]
        messages = [message_of(record, count > 1, is_five(store)) for record in of_put]
        yield GoldenPut(messages, of_put, count > 1)


def message_of(record: Record, of_batch: bool, of_five: bool = False) -> Message:
    """Return the message as it was put: before it was delayed, and before it got offsets in further queues."""
    topic, queue_id = record.topic, record.queue_id
    # If possible, give properties as a map, so that the writer must find their order. Otherwise give the stored string.
    properties: dict[str, str] | str = record.properties_string
    known = decode_properties(record.properties_string)
    stored = record.properties_string.replace("INNER_MULTI_QUEUE_OFFSET\x01\x02", "")
    encoded = encode_properties(known)
    # The order in a message of a batch (also of a batch of one) is not that of a map, because the broker appends its
    # own properties. A message from the timer had more properties before, and the size of Java's map decides the order.
    names = [name for name in known if name != "__CRC32#"]
    of_batch |= names[-2:] == ["CLUSTER", "WAIT"] or "TIMER_DEQUEUE_MS" in known
    if UNIQ_KEY in known and not of_batch and stored == encoded + "\x02" * of_five:
        properties = known
        for name in MADE_BY_THE_STORE:
            properties.pop(name, None)
        if topic == "SCHEDULE_TOPIC_XXXX":
            topic, queue_id = properties.pop("REAL_TOPIC"), int(properties.pop("REAL_QID"))
    return Message(
        topic=topic,
        body=record.body,
        queue_id=queue_id,
        properties=properties,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=_host(record.born_host),
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
    )


def _host(stored: tuple[bytes, int]) -> Host:
    address, port = stored
    return Host(str(ip_address(address)), port)


class Replay:
    """Puts into a new store at the times, and from the hosts, of a golden one."""

    def __init__(self, store: GoldenStore, folder: Path) -> None:
        self._config, self._folder = store_config(store), folder
        self._wholly_blank = [
            row.physical_offset
            for row in store.blanks
            if row.declared_size == store.commit_log_file_bytes
        ]
        # Where the log ended when a 5.x broker was last started; None for other brokers and for an empty log.
        self._last_loaded = facts_of(store.path).checkpoint.confirmed_offset or None
        self._writer: StoreWriter | None = None
        self.now_ms = 0

    def writer(self, put: GoldenPut) -> StoreWriter:
        """Return the open store in the state that this put needs."""
        self.now_ms = put.time_ms
        is_restarted = self._last_loaded is not None and (
            put.records[0].physical_offset > self._last_loaded
        )
        if (
            self._writer is None
            or is_restarted
            or self._writer.settings.store_host != put.store_host
        ):
            offsets = (
                {} if self._writer is None or is_restarted else self._writer._log.queue_offsets
            )
            self._last_loaded = None if is_restarted else self._last_loaded
            self.close()
            settings = WriterSettings(store_host=put.store_host)
            self._writer = StoreWriter(
                self._folder, self._config, settings, clock_ms=lambda: self.now_ms
            )
            # The broker was not restarted, so offsets of messages without an entry remain taken (5.x).
            self._writer._log.queue_offsets.update(offsets)
        for blank in self._wholly_blank:
            # For a message larger than a file, the broker wrote only a BLANK into this file and the next. The writer
            # here refuses such a message, so end the files in its place.
            while self._writer.end_offset <= blank < put.records[0].physical_offset:
                self._writer._log._roll()
        return self._writer

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


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
