"""Define `reput.erase`, which erases messages from a copy of a store, or from an archive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath

from reput.base import Progress, StoreConfig, Time, checked, optional_milliseconds, silent
from reput.errors import UsageError
from reput.io import storage_of
from reput.wings.erase.choosing import Choice
from reput.wings.erase.from_archive import erase_from_archive
from reput.wings.erase.from_store import erase_from_store
from reput.wings.erase.report import EraseReport
from reput.wings.erase.steps import Purpose


@checked
def erase(
    store: str | PathLike[str],
    output: str | PathLike[str] | None = None,
    *,
    topics: Sequence[str] = (),
    keys: Sequence[str] = (),
    query: str | None = None,
    begin: Time | None = None,
    end: Time | None = None,
    plan_only: bool = False,
    reason: str = "",
    by: str = "",
    signing_key: str | PathLike[str] | None = None,
    hashes: bool = True,
    audit: str | PathLike[str] | None = None,
    leave_out: Sequence[str] = (),
    tables: Sequence[str] = (),
    config: StoreConfig | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress = silent,
) -> EraseReport:
    """Overwrite bodies and properties of selected messages, in a copy of a store or in an archive.

    Messages that meet all conditions are erased, together with their copies in retry, dead-letter, delay, timer,
    half-transaction and trace topics. Their log records keep their length, physical offset and queue offset.

    Args:
        store: A local store, which is only read, and on which no broker may run; or an archive, which is changed.
        output: The folder of the copy, which must not exist; None for an archive.
        topics: Erase messages of these topics.
        keys: Erase messages with one of these keys or unique keys.
        query: Erase messages whose properties match this SQL92 expression of RocketMQ.
        begin, end: Erase messages stored between these times.
        plan_only: Only report the messages that would be erased.
        reason, by: The reason and the person, for the audit file, which describes the erasure. `by` defaults to this
            user.
        signing_key: A file with an Ed25519 key in PEM format, with which to sign the audit file.
        hashes: Whether the audit file contains SHA-256 hashes of erased content. With such a hash, anyone who guesses a
            message can prove that it existed.
        audit: Path of the audit file; by default `<output>.erasure.json`. For an archive, the file is stored in the
            archive.
        leave_out: Files and folders of the store that are not copied.
        tables: Lake tables written by `export`. The report states how many of their rows have content of erased
            messages. The tables are not changed.
        config: The broker's settings; by default sizes are derived from the store's files.
        storage_options: Options as for `open_store`.
        progress: Called with the phase, units done and units in all.

    Returns:
        A report of the erased messages. If no message was found, nothing is written.

    Raises:
        UsageError: no condition was given, the output exists, a broker owns the store, or a part of the store cannot be
            copied.
        StoreError: a part of the log is unreadable, and may contain messages to erase.
        StoreNotFoundError, StoreAccessError, StoreChangedError.
    """
    choice = Choice(
        tuple(topics),
        tuple(keys),
        query,
        optional_milliseconds(begin),
        optional_milliseconds(end, is_end=True),
    )
    choice.check()
    key = None if signing_key is None else fspath(signing_key)
    place, purpose = fspath(store), Purpose(by, reason, key, hashes)
    if storage_of(place, storage_options)[0].is_archive:
        arguments = {
            "output": output,
            "audit": audit,
            "leave_out": leave_out or None,
            "config": config,
        }
        if refused := [name for name, value in arguments.items() if value is not None]:
            raise UsageError(
                f"{', '.join(refused)}: cannot be used with an archive, which is changed in place",
                arguments=refused,
            )
        return erase_from_archive(
            place,
            choice,
            purpose,
            plan_only=plan_only,
            tables=tuple(tables),
            options=storage_options,
            progress=progress,
        )
    return erase_from_store(
        place, None if output is None else fspath(output), choice, purpose,
        plan_only=plan_only, config=config, audit=None if audit is None else fspath(audit),
        leave_out=tuple(leave_out), tables=tuple(tables), options=storage_options, progress=progress,
    )  # fmt: skip
