"""Checks in tests: a check must not change a byte or a time of the store."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reput.base.config import StoreConfig
from reput.base.findings import Finding
from reput.engine.check.run import check_store

Facts = dict[str, tuple[int, int, int, bytes]]


def facts(store: Path) -> Facts:
    """Return size, mtime, ctime and bytes of everything below a store, folders included."""
    found: Facts = {}
    for path in [store, *sorted(store.rglob("*"))]:
        status = os.lstat(path)
        data = path.read_bytes() if path.is_file() and status.st_size < 1 << 20 else b""
        found[str(path)] = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, data)
    return found


@contextmanager
def unchanged(store: Path) -> Iterator[None]:
    """Check that the body of the `with` statement leaves the store unchanged."""
    before = facts(store)
    yield
    assert facts(store) == before


def checked(store: Path, config: StoreConfig | None = None, **options: Any) -> list[Finding]:
    """Return all findings of a check, after verifying that it changed nothing."""
    with unchanged(store):
        return list(check_store(store, config=config, **options))


def kinds(findings: list[Finding]) -> set[str]:
    return {str(finding.kind) for finding in findings}
