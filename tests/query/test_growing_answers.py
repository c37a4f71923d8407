"""A log that grows between two steps of one answer: the answer has an end, and every message before this end."""

from pathlib import Path

import pytest

import reput
from reput.base.config import StoreConfig
from reput.core.index.plan import Segment
from reput.core.query.search import KeyPredicate, Search
from reput.core.store.store_reader import StoreReader
from reput.engine.lookup.ranges import StorePlan

CONFIG = StoreConfig(
    commit_log_file_bytes=1 << 13, queue_entries=20, hash_slots=16, index_items=100
)
FEW, A_FILE = 2, 40
grows = pytest.mark.parametrize("count", [FEW, A_FILE])


def put(store: reput.WritableStore, count: int) -> None:
    store.put_many([reput.Message("T", b"x" * 200, [str(n)]) for n in range(count)])
    assert store.wait_dispatched()


@grows
def test_what_is_put_after_the_end_was_found_is_not_lost(tmp_path: Path, count: int) -> None:
    with reput.open_store(tmp_path, mode="rw", config=CONFIG) as writer:
        put(writer, 10)
        with reput.open_store(tmp_path, config=CONFIG) as reader:
            end = reader.end_offset()
            put(writer, count)
            assert reader.lost_end(end) is None


@grows
def test_a_query_of_a_log_that_grows_before_it_is_planned(tmp_path: Path, count: int) -> None:
    with reput.open_store(tmp_path, mode="rw", config=CONFIG) as writer:
        put(writer, 10)
        with reput.open_store(tmp_path, config=CONFIG) as reader:
            search = Search(reader.commit_log, KeyPredicate((), ()))
            put(writer, count)
            found = search.run(reader.key_planner())
            assert found.is_complete
            assert found.coverage.log.stop == writer.end_offset()


@grows
def test_a_query_whose_index_is_newer_than_its_list_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    with reput.open_store(tmp_path, mode="rw", config=CONFIG) as writer:
        put(writer, 10)
        with reput.open_store(tmp_path, config=CONFIG) as reader:
            log, planner = reader.commit_log, reader.key_planner()
            segments = planner.segments

            def planned_late() -> tuple[Segment, ...]:
                with monkeypatch.context() as listed:
                    listed.setattr(log, "refresh", lambda: False)
                    found = segments()
                log.refresh()
                return found

            monkeypatch.setattr(planner, "segments", planned_late)
            put(writer, count)
            assert Search(log, KeyPredicate((), ())).run(planner).is_complete


@grows
def test_a_look_up_tells_the_end_that_it_was_planned_with(tmp_path: Path, count: int) -> None:
    with reput.open_store(tmp_path, mode="rw", config=CONFIG) as writer:
        put(writer, 10)
        with StoreReader(str(tmp_path), config=CONFIG) as reader:
            plan = StorePlan(0, reader)
            end = plan.log.files_end
            put(writer, count)
            reader.commit_log.refresh()
            assert plan.coverage().log.stop == end
