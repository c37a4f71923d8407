"""`reput prove`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from reput.cli.main import DAMAGED, FOUND
from reput.cli.options import (
    index_option,
    open_from,
    store_argument,
    text_or_json,
    with_config_options,
)
from reput.errors import UsageError
from reput.messages.text import printable

if TYPE_CHECKING:
    from reput.index.proven import Proof
    from reput.index.reader import IndexFileReader


@click.command(
    "prove",
    short_help="Prove which part of the log each IndexFile covers.",
    epilog="\b\nExample:\n  reput prove /data/store",
)
@store_argument
@with_config_options
@index_option
@text_or_json("Output format.")
def command(store: str, layout: str, **opening: Any) -> int:
    """Prove which part of the log each IndexFile of STORE covers, and remember it.

    An IndexFile covers a range of the log if every key of every message in it has an entry that a
    look-up reaches. IndexFiles of up to 64 MiB of log are compared with all of it. For larger ones,
    slots and entries are checked, and the log where entries are far apart and at a thousand other
    positions. Proofs are kept in your cache folder (XDG_CACHE_HOME, or ~/.cache), and are valid until
    the file or the log changes. The store is only read.

    Exits with 3 if an IndexFile does not cover all of the log between its first and its last message.
    """
    from reput.files.storage import is_url
    from reput.index.proving import prove_all

    if is_url(store):
        raise UsageError(f"{store}: IndexFiles are proved only on a local file system")
    with open_from(store, **opening) as opened:
        files = opened.index.current()
        found = prove_all(store, files, afresh=True)
        problems = [str(finding) for finding in opened.index.problems]
        if layout == "json":
            rows = [_as_json(file, proof) for file, proof in zip(files, found, strict=True)]
            click.echo(json.dumps({"files": rows, "problems": problems}, indent=2))
        else:
            for file, proof in zip(files, found, strict=True):
                click.echo(_text(file, proof))
            for problem in problems:
                click.echo(f"not used: {printable(problem)}")
    wrong = problems or any(proof.problems for proof in found)
    return DAMAGED if wrong else FOUND


def _text(file: IndexFileReader, proof: Proof) -> str:
    covered = sum(part.size_bytes for part in proof.ranges)
    line = f"{printable(file.name)}  {proof.items:,} entries prove {covered:,} bytes of the log"
    if proof.ranges:
        line += f", from {proof.ranges[0].start:,} to {proof.ranges[-1].stop:,}"
    return "\n".join([line, *(f"  not proved: {printable(problem)}" for problem in proof.problems)])


def _as_json(file: IndexFileReader, proof: Proof) -> dict[str, Any]:
    return {
        "file": file.path,
        "entries": proof.items,
        "ranges": [list(part) for part in proof.ranges],
        "gap_bytes": proof.gap_bytes,
        "problems": list(proof.problems),
    }
