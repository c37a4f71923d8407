"""Erase messages from a store: choose them, write a copy of the store without them, and record the erasure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from reput.base import Progress, StoreConfig, silent
from reput.engine.writer import survey_of
from reput.errors import UsageError
from reput.io import DISK, Location
from reput.wings.erase.choosing import Choice, Chooser
from reput.wings.erase.overwriting import Eraser
from reput.wings.erase.report import EraseReport
from reput.wings.erase.steps import Purpose, looked_elsewhere, new_id, plan_of, record_of
from reput.wings.erase.store_copy import StoreCopy, check_output, check_source


def erase_from_store(
    store: str,
    output: str | None,
    choice: Choice,
    purpose: Purpose,
    *,
    plan_only: bool = False,
    config: StoreConfig | None = None,
    audit: str | None = None,
    leave_out: tuple[str, ...] = (),
    tables: tuple[str, ...] = (),
    options: Mapping[str, str] | None = None,
    progress: Progress = silent,
) -> EraseReport:
    """Write a copy of a store without the content of the chosen messages, as `reput.erase` specifies."""
    if Location.is_url(store):
        raise UsageError(
            f"{store}: messages can be erased only from local stores and from archives",
            arguments=["store"],
        )
    facts = survey_of(store, config)
    target = None if output is None else Path(output)
    # Read the signing key now, so that an invalid key is reported before the log is read.
    purpose.signer()
    record_path = _audit_path(target, audit)
    if not plan_only:
        if target is None or record_path is None:
            raise UsageError(
                "output is missing: pass a new folder for the copy", arguments=["output"]
            )
        check_source(facts, leave_out)
        check_output(target, Path(store))
        if audit is not None and record_path.exists():
            raise UsageError(
                f"{record_path}: already exists; choose another file", arguments=["audit"]
            )
    selection = Chooser(store, choice, options, progress).find()
    offsets = selection.offsets
    files = sum(
        bool(((file.start <= offsets) & (offsets < file.end)).any()) for file in facts.log.files
    )
    report = plan_of(store, selection, files)
    if not selection.sizes:
        return report
    report = looked_elsewhere(report, selection, tables, options, progress)
    if plan_only or target is None or record_path is None:
        return report
    erasure_id = new_id()
    eraser = Eraser(selection, erasure_id)
    copy = StoreCopy(facts, target, eraser, leave_out, progress)

    def record() -> None:
        data = record_of(store, choice, purpose, eraser, erasure_id, tuple(copy.files))
        with DISK.writing_to(record_path):
            DISK.write_durable(record_path, data)
            # After a power cut, no copy exists without this record.
            DISK.sync_folder(record_path.parent)

    with DISK.writing_to(target, [store]):
        copy.write(record)
    return replace(
        report, destination=str(target), is_done=True, id=erasure_id, bare=eraser.bare,
        audit=str(record_path), is_signed=purpose.signing_key is not None, left_out=tuple(copy.left_out),
    )  # fmt: skip


def _audit_path(target: Path | None, audit: str | None) -> Path | None:
    if audit is not None:
        return Path(audit)
    return None if target is None else target.with_name(f"{target.name}.erasure.json")
