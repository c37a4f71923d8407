"""Define the command `reput serve`."""

from __future__ import annotations

from typing import Any

import click

from reput.base import STORE_VERSIONS
from reput.cli import (
    NO_STORE,
    SIZE,
    archive_option,
    check_archived,
    config_options,
    flag,
    fleet_option,
    listed_in,
    path_option,
    refuse_logs_option,
)
from reput.engine.stores import with_archive
from reput.errors import UsageError
from reput.wings.console.serving import Serving, address_of
from reput.wings.serve import CLUSTER

_LISTEN = "127.0.0.1:9876"


@click.command(
    "serve",
    epilog="\b\nExamples:"
    "\n  reput serve /data/store"
    "\n  reput serve /data/store --http 127.0.0.1:8080"
    "\n  reput serve --stores fleet.toml --http 127.0.0.1:8080 --http-only"
    "\n  reput serve /backup/broker-a /backup/broker-b --listen 10.0.0.5:9876"
    "\n  reput serve /archive --exact"
    "\n  reput serve /data/new-store --accept-sends --flush sync"
    "\n  mqadmin queryMsgByKey -n 127.0.0.1:9876 -t orders -k o-17",
)
@click.argument(
    "stores", metavar="[STORE]...", nargs=-1, type=click.Path(), callback=refuse_logs_option,
)  # fmt: skip
@fleet_option
@click.option(
    "--listen",
    default=_LISTEN,
    show_default=True,
    metavar="HOST:PORT",
    help="Address of the first store; further stores get the next ports.",
)
@click.option(
    "--http",
    metavar="HOST:PORT",
    help="Also serve a web page and an HTTP API at this address, for example 127.0.0.1:8080.",
)
@flag("--http-only", "Serve only the page and the HTTP API; stores get no addresses.")
@path_option("--http-token-file", "FILE", "Require the token in FILE from clients of --http.")
@path_option(
    "--http-users",
    "FILE",
    "TOML file of the users of --http: their tokens and roles, and a proxy that authenticates users.",
    "http_users_file",
)
@click.option(
    "--http-host",
    "http_hosts",
    multiple=True,
    metavar="NAME",
    help="A host name in the URLs that browsers and Prometheus use for --http; repeatable. Names of this machine are "
    "always accepted, and all names with --http-token-file.",
)
@click.option(
    "--audit-log",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Append a line of JSON to FILE for each request that reads or changes something: user, request, outcome.",
)
@click.option(
    "--advertise",
    "advertised",
    metavar="HOST",
    help="Host that clients connect to, if it differs from the host of --listen.",
)
@click.option(
    "--cluster",
    default=CLUSTER,
    show_default=True,
    metavar="NAME",
    help="Name of the cluster, for mqadmin -c.",
)
@flag(
    "--accept-sends",
    "Own each STORE as a broker does: accept messages, and create STORE if it does not exist.",
    "accepts_sends",
)
@flag(
    "--sql-filters",
    "Let consumers filter by SQL92 expressions (enablePropertyFilter).",
    "has_sql_filters",
)
@click.option(
    "--store-version",
    type=click.Choice(STORE_VERSIONS),
    help="With --accept-sends: RocketMQ version of a new STORE. An existing store keeps its version.",
)
@click.option(
    "--flush",
    type=click.Choice(["async", "sync"]),
    help="When a sent message becomes durable: async soon after, sync before it is acknowledged (flushDiskType).",
)
@path_option("--acl", "FILE", "Accounts and their permissions (plain_acl.yml).")
@path_option(
    "--tls-cert",
    "FILE",
    "Certificate chain (PEM); encrypts all connections, including those to --http.",
)
@path_option("--tls-key", "FILE", "Private key of --tls-cert (PEM).")
@flag(
    "--exact",
    "Answer queries by key without hash collisions, and with up to --max-results messages. "
    "Report unreadable messages to each consumer group once, instead of skipping them.",
)
@click.option(
    "--max-results",
    type=click.IntRange(1, 100_000),
    default=1000,
    show_default=True,
    metavar="N",
    help="With --exact: maximum number of messages in an answer.",
)
@click.option(
    "--workers", type=click.IntRange(1, 64), default=1, hidden=True
)  # removed; scripts may still pass 1
@click.option(
    "--max-connections",
    type=click.IntRange(1, 1_000_000),
    default=10_000,
    show_default=True,
    metavar="N",
    help="Maximum number of connections.",
)
@click.option(
    "--max-frame",
    "frame_bytes",
    default="16MiB",
    show_default=True,
    type=SIZE,
    help="Maximum size of a request.",
)
@click.option(
    "--idle-timeout",
    "idle_s",
    type=click.FloatRange(1),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="Close connections that are silent for this long.",
)
@archive_option
@config_options
def serve_command(
    http_only: bool,
    stores: tuple[str, ...],
    fleet: str | None,
    listen: str,
    http: str | None,
    workers: int,
    archive: str | None,
    **options: Any,
) -> int:
    """Answer RocketMQ's clients and mqadmin from each STORE: a live store, an archive, or a folder of stores.

    Each store is a broker of one cluster and has an address of its own, at which it also answers as
    name server. The command also serves messages and stores that are added while it runs. Stores of
    a fleet file have the names given there. Of a master and its replicas, only the master is served.

    Without --accept-sends nothing is written into a store: clients can read, and their offsets are lost when the
    process ends. With --accept-sends the process owns each STORE, which no broker may have open. It keeps topics and
    offsets in config/ of the store, as a broker does.

    The command runs until SIGINT, SIGTERM or SIGHUP, and then finishes the requests in flight.
    """
    if not stores and fleet is None:
        raise UsageError(NO_STORE)
    address = address_of(listen, "listen")
    http_address = None if http is None else address_of(http, "http")
    if workers > 1:
        raise UsageError(
            "workers was removed: to use more processors, run several servers of the same stores, each with its own "
            "listen address",
            arguments=["workers", "listen"],
        )
    accepts_sends = options["accepts_sends"]
    for name, value, needed, present in (
        ("store_version", options["store_version"], "accept_sends", accepts_sends),
        ("http_only", http_only, "http", http),
        ("flush", options["flush"], "accept_sends", accepts_sends),
        ("http_hosts", options["http_hosts"], "http", http),
        ("http_token_file", options["http_token_file"], "http", http),
    ):
        if value and not present:
            raise UsageError(f"{name} needs {needed}", arguments=[name, needed])
    if http_only and accepts_sends:
        raise UsageError(
            "http_only cannot be combined with accept_sends",
            arguments=["http_only", "accept_sends"],
        )
    if options["http_users_file"] and (http is None or options["http_token_file"]):
        raise UsageError(
            "http_users needs http, and cannot be combined with http_token_file",
            arguments=["http_users", "http"],
        )
    is_open = not (options["http_token_file"] or options["http_users_file"])
    if options["acl"] and http is not None and is_open:
        raise UsageError(
            "acl does not restrict http: every user of this machine could read messages; also pass http_token_file",
            arguments=["acl", "listen", "http", "http_token_file"],
        )
    check_archived(stores, archive, fleet)
    if archive is not None:
        if options["accepts_sends"]:
            raise UsageError(
                "accept_sends cannot be combined with archive: an archive is only read",
                arguments=["accept_sends", "archive"],
            )
        stores = (with_archive(stores[0], archive),)
    at = None if http_only else address
    return Serving(stores, listed_in(fleet), at, http_address, **options).run()
