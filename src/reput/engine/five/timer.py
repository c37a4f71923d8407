"""Read messages that wait for their time in a broker's timer wheel (5.x), from the timer log."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from reput.base import Finding, Kind
from reput.core import MessageStore
from reput.errors import CorruptMessageError, MessageNotFoundError, StoreNotFoundError
from reput.format.commit_log import MessageExt
from reput.format.file_names import (
    CONFIG_FOLDER,
    TIMER_CHECK_FILE,
    TIMER_LOG_FOLDER,
    parse_offset_file_name,
)
from reput.format.properties import REAL_TOPIC
from reput.format.timer_log import (
    TIMER_UNIT_BYTES,
    TimerUnit,
    decode_timer_check,
    decode_timer_unit,
    is_timer_blank,
    recall_key,
    recalled_key,
)
from reput.io import Storage, listed_size

_TIMER_CHECK = os.path.join(CONFIG_FOLDER, TIMER_CHECK_FILE)
_READ_UNITS = 1 << 12
WAITING = ("waiting", "rolled")
"""The states of messages that are still to be delivered."""


@dataclass(frozen=True, slots=True)
class TimedMessage:
    """A message in the timer log.

    Attributes:
        unit: place and due time of the message
        state: `waiting`; `rolled` (waits longer than one turn of the wheel, then is written again); `recalled` (a
            recall has cancelled it, so it is never delivered); `recall` (waits to cancel another message);
            `delivered`; `done` (a recall whose time has passed, or a rolled message that was written again)
        message: the waiting message, under the timer's topic; None if the log no longer has it
    """

    unit: TimerUnit
    state: str
    message: MessageExt | None

    @property
    def real_topic(self) -> str | None:
        """Return the topic to which the message is delivered; None if unknown."""
        return None if self.message is None else self.message.properties.get(REAL_TOPIC)


class TimerLog:
    """The timer log of an open store. It iterates over its messages, in the order in which they were scheduled.

    Attributes:
        delivered_to: messages due before this time (ms) were delivered; 0 if the store does not state it
        damage: unreadable parts; complete after the iteration
    """

    def __init__(self, store: MessageStore) -> None:
        """Open the timer log. Raises StoreAccessError, and StoreNotFoundError if the store has none."""
        self._store, self._storage = store, store.storage
        self._folder = os.path.join(store.path, TIMER_LOG_FOLDER)
        if self._storage.entry(self._folder) is None:
            raise StoreNotFoundError(f"{store.path}: has no {TIMER_LOG_FOLDER}/")
        self.delivered_to, self._flushed = _timer_check(
            os.path.join(store.path, _TIMER_CHECK), self._storage
        )
        self.damage: list[Finding] = []

    def __iter__(self) -> Iterator[TimedMessage]:
        recalled = self._recalled()
        # `_recalled` has read the timer log and listed its damage. The pass below lists it again, so clear the list.
        self.damage = []
        for unit in self._units():
            message = self._message(unit)
            yield TimedMessage(unit, self._state(unit, message, recalled), message)

    def _recalled(self) -> set[tuple[str, str]]:
        """Return the keys of all recalled messages.

        In the timer log, the recall of a message follows the message. So all recalls must be read before the state of
        the first message is determined.
        """
        messages = (self._message(unit) for unit in self._units() if unit.deletes)
        keys = (recalled_key(message.properties) for message in messages if message is not None)
        return {key for key in keys if key is not None}

    def _message(self, unit: TimerUnit) -> MessageExt | None:
        try:
            return self._store.get(unit.physical_offset)
        # The message has expired.
        except MessageNotFoundError:
            pass
        except CorruptMessageError as error:
            self.damage.append(Finding.of_error(Kind.UNREADABLE_RECORD, error))
        return None

    def _state(
        self, unit: TimerUnit, message: MessageExt | None, recalled: set[tuple[str, str]]
    ) -> str:
        is_over = unit.due <= self.delivered_to
        if unit.deletes:
            return "done" if is_over else "recall"
        if unit.is_rolled and is_over:
            return "done"
        if message is not None and recall_key(message.properties) in recalled:
            return "recalled"
        if is_over:
            return "delivered"
        return "rolled" if unit.is_rolled else "waiting"

    def _units(self) -> Iterator[TimerUnit]:
        entries = self._storage.list(self._folder)
        files = [entry for entry in entries if parse_offset_file_name(entry.name) is not None]
        reached = 0
        for entry in sorted(files, key=lambda entry: entry.name):
            size, position = listed_size(entry), 0
            if size is None:
                continue
            start = parse_offset_file_name(entry.name) or 0
            if reached and start != reached:
                # A file of the timer log begins where the previous one ends. If there is a gap between them, the units
                # in the gap are lost.
                self._note_lost(reached, start)
            try:
                with self._storage.open(entry.path) as reader:
                    while position < size:
                        data = reader.read(
                            position, min(_READ_UNITS * TIMER_UNIT_BYTES, size - position)
                        )
                        at = 0
                        while (unit := decode_timer_unit(data, at)) is not None:
                            yield unit
                            at += TIMER_UNIT_BYTES
                        position += at
                        if at < _READ_UNITS * TIMER_UNIT_BYTES:
                            is_over = self._note_end(
                                entry.path, data[at:], position, size - position
                            )
                            position = size if is_over else position
                            break
                reached = start + position
            # The file has expired meanwhile.
            except StoreNotFoundError:
                continue
        if reached < self._flushed:
            self._note_lost(reached, self._flushed)

    def _note_lost(self, start: int, stop: int) -> None:
        detail = f"units of the timer log from position {start} to {stop} are lost"
        self.damage.append(Finding(Kind.FOREIGN_FILE, self._folder, detail))

    def _note_end(self, path: str, data: bytes, position: int, left: int) -> bool:
        """Report bytes that are neither a unit nor a blank. Return whether the timer log continues in the next file."""
        is_over = is_timer_blank(data, 0, left)
        if any(data) and not is_over:
            detail = "no unit of the timer log begins here; the rest of the file is not read"
            self.damage.append(Finding(Kind.FOREIGN_FILE, path, detail, position))
        return is_over or any(data)


def _timer_check(path: str, storage: Storage) -> tuple[int, int]:
    """Return the time (ms) up to which messages were delivered, and the timer log's end: 0 for unknown values."""
    entry = storage.entry(path)
    if entry is None:
        return 0, 0
    with storage.open(path) as reader:
        return decode_timer_check(reader.read(0, min(entry.stat().st_size, 64)))
