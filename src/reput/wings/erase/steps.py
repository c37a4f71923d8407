"""Provide the steps that are common to erasing from a store and from an archive."""

from __future__ import annotations

import getpass
import os
import socket
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from reput.base import Progress, format_time, now_ms
from reput.format.erasure import ChangedFile, Erasure, encode_erasure, encode_stored
from reput.io import Signer
from reput.wings.erase.choosing import Choice, ChosenMessages
from reput.wings.erase.mentions import find_mentions
from reput.wings.erase.overwriting import Eraser
from reput.wings.erase.report import ErasedMessages, EraseReport
from reput.wings.erase.tables import rows_in

_ID_DIGITS = 16


def new_id() -> str:
    """Return a new random id of an erasure."""
    return uuid.uuid4().hex[:_ID_DIGITS]


@dataclass(frozen=True, slots=True)
class Purpose:
    """The person and the reason of an erasure, and the key that signs its record.

    Attributes:
        by: The person; by default user and host.
        reason: The reason.
        signing_key: Path of an Ed25519 key; None for an unsigned record.
        has_hashes: Whether the record contains hashes of erased content.
    """

    by: str = ""
    reason: str = ""
    signing_key: str | None = None
    has_hashes: bool = True

    def signer(self) -> Signer | None:
        """Read the signing key. Raises UsageError, StoreAccessError, MissingExtraError."""
        return None if self.signing_key is None else Signer.of(self.signing_key)


def plan_of(source: str, selection: ChosenMessages, files: int) -> EraseReport:
    """Return the report of an erasure that is only planned."""
    # List ordinary messages first, then records of all other roles (such as retries and half messages).
    counts = sorted(selection.counts.items(), key=lambda item: (item[0][0] != "message", item[0]))
    return EraseReport(
        source, None, False, "", tuple(ErasedMessages(*name, count) for name, count in counts),
        len(selection.sizes), sum(selection.sizes.values()), files,
    )  # fmt: skip


def looked_elsewhere(
    report: EraseReport, selection: ChosenMessages, tables: Sequence[str],
    options: Mapping[str, str] | None, progress: Progress,
) -> EraseReport:  # fmt: skip
    """Search remaining messages and table rows for erased content, and add what is found to a report."""
    mentions, notes = find_mentions(report.source, selection, options, progress)
    return replace(
        report, mentions=mentions, notes=notes,
        tables=tuple(rows_in(table, selection) for table in tables),
    )  # fmt: skip


def record_of(
    source: str, choice: Choice, purpose: Purpose, eraser: Eraser, erasure_id: str,
    files: tuple[ChangedFile, ...],
) -> bytes:  # fmt: skip
    """Return the record of an erasure as bytes, signed if there is a key."""
    records = tuple(eraser.erased)
    if not purpose.has_hashes:
        records = tuple(msgspec.structs.replace(entry, sha256="") for entry in records)
        # Omit hashes of whole files. If all other bytes of the file are known, such a hash could confirm a guessed
        # message.
        files = tuple(msgspec.structs.replace(entry, before="") for entry in files)
    erasure = Erasure(
        id=erasure_id, erased_at=format_time(now_ms()), by=purpose.by or _this_user(),
        reason=purpose.reason, source=source, topics=choice.topics, records=records, files=files,
    )  # fmt: skip
    data = encode_erasure(erasure)
    signer = purpose.signer()
    return encode_stored(data, None if signer is None else signer.sign(data))


def _this_user() -> str:
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = str(os.getuid())
    return f"{name}@{socket.gethostname()}"
