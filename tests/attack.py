"""The tests that attack: hostile files, clients and users. `make test-attack` runs them with seeds."""

from __future__ import annotations

from pathlib import Path

import pytest

LOGS = (
    "lakes/test_json_body.py", "lakes/test_json_inference.py", "messages/test_avro_bodies.py",
    "messages/test_proto_bodies.py", "fuzzing/test_findings.py", "log/test_preallocated.py",
    "log/test_reading.py", "messages/test_decode.py", "messages/test_memory.py", "query/test_hostile.py",
    "rebuild/test_damage.py", "rebuild/test_random.py", "rebuild/test_torn.py", "tables/test_damage.py",
)  # fmt: skip
TREES = (
    "cli/test_pipes.py", "lakes/test_places.py", "io/test_reader.py", "query/test_expiring_under.py",
    "query/test_lost_end.py", "query/test_shrinking.py", "recovery/test_recovery_point.py", "writer/test_links.py",
)  # fmt: skip
ARCHIVES = (
    "archive/test_budgets.py", "archive/test_hostile.py", "archive/test_random_changes.py", "io/test_parquet.py",
)  # fmt: skip
INDEXES = (
    "index/test_bulk.py", "index/test_changed_files.py", "index/test_changed_meanwhile.py", "index/test_proof.py",
    "index/test_spot_checks.py", "kernels/test_index_proof.py",
    "query/test_index_damage.py", "query/test_mutations.py", "queues/test_damage.py",
)  # fmt: skip
CLIENTS = (
    "console/test_access.py", "console/test_budgets.py", "remoting/test_access.py", "remoting/test_budgets.py",
    "remoting/test_codec.py", "remoting/test_failing_store.py", "remoting/test_hostile.py", "remoting/test_loop.py",
    "remoting/test_rights.py", "remoting/test_storm.py",
)  # fmt: skip
USERS = (
    "archive/test_links_of_others.py", "cli/test_links_of_others.py",
    "cli/test_show.py", "io/test_lock.py", "io/test_private.py", "index/test_remembered.py",
    "kernels/test_compile_cache.py", "lookup/test_staging.py", "messages/test_table_text.py", "check/test_swaps.py",
    "writer/test_closing.py", "writer/test_fork.py", "writer/test_interrupts.py",
)  # fmt: skip
ATTACKS = frozenset((*LOGS, *TREES, *ARCHIVES, *INDEXES, *CLIENTS, *USERS))

_TESTS = Path(__file__).parent


def mark_attacks(items: list[pytest.Item]) -> None:
    """Give the tests in files of ATTACKS the mark `attack`."""
    for item in items:
        if item.path.relative_to(_TESTS).as_posix() in ATTACKS:
            item.add_marker(pytest.mark.attack)
