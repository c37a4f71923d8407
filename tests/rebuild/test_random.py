"""Random logs rebuilt as the oracle dispatches them, at any split size and any file size."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from reput.format.file_names import is_folder_name
from tests.oracle.forge import LogForge, RecordFields, body_position, encode_record
from tests.oracle.random_logs import LogOptions, random_log
from tests.oracle.walk import walk
from tests.rebuild.rebuilding import SMALL, assert_oracle, damage_of, rebuild_log
from tests.slow import slow_from

SEEDS = 60
SLOW_SEEDS = 1500


def check(seed: int, folder: Path) -> None:
    random = Random(seed)
    multi = random.random() < 0.4
    options = LogOptions(
        records=random.choice((5, 40, 120)),
        file_bytes=random.choice((1024, 4096)),
        start_offset=random.choice((0, 8192)),
        queue_start=random.choice((0, 13)),
        irregular=random.random() < 0.4,
        multi_dispatch=multi,
    )
    config = replace(
        SMALL,
        enable_multi_dispatch=multi,
        enable_lmq=random.random() < 0.5,
        index_items=random.choice((2, 3, 40)),
        queue_entries=random.choice((1, 7, 100)),
    )
    log = random_log(seed, options)
    split_size = random.choice((1, 91, 100, 1000, None))
    report = rebuild_log(folder, log.files, config, split_size=split_size)
    found = walk(log.files)
    assert_oracle(folder / "out", found, config)
    assert report.messages == len(found.records)
    assert damage_of(report) == []
    assert (report.log_begin, report.log_end) == (options.start_offset, log.end_offset)
    misplaced = [offset for offset, record in found.records if record.physical_offset != offset]
    stated = [note for note in report.notes if "a physical offset other than its position" in note]
    assert [note.partition(" ")[0] for note in stated] == [str(len(misplaced))] * bool(misplaced)


@pytest.mark.parametrize("seed", slow_from(SEEDS // 2, range(SEEDS)))
def test_a_random_log_is_rebuilt_as_the_oracle_dispatches_it(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_random_logs(tmp_path: Path) -> None:
    for seed in range(SEEDS, SLOW_SEEDS):
        check(seed, tmp_path / str(seed))


def nested(depth: int, offset: int, body_bytes: int = 30) -> RecordFields:
    """A record at `offset` whose body holds a record at its true offset, and so on."""
    fields = RecordFields("t", b"x" * body_bytes, {"KEYS": f"k{depth}"}, physical_offset=offset)
    if depth == 0:
        return fields
    inner = encode_record(nested(depth - 1, offset + body_position(fields)))
    return replace(fields, body=inner + b"y" * 5)


@pytest.mark.parametrize("split_size", [1, 91, 95, 137, 333, 1000])
def test_forged_records_in_bodies_are_never_taken(split_size: int, tmp_path: Path) -> None:
    """A split that begins in a body accepts a forged record at first, because it is verifiable, and drops it later."""
    forge = LogForge(8192)
    for number in range(30):
        size = len(encode_record(nested(number % 4, 0)))
        offset = forge.make_room(size)
        fields = nested(number % 4, offset)
        forge.put_bytes(encode_record(replace(fields, queue_offset=number)))
    report = rebuild_log(tmp_path, forge.files(), split_size=split_size)
    found = walk(forge.files())
    assert len(found.records) == 30
    assert_oracle(tmp_path / "out", found, SMALL)
    assert report.rescanned > 0


def test_forged_records_that_lie_about_their_place_do_not_count_as_indexed(tmp_path: Path) -> None:
    """Forged records state a distant physical offset. A split that drops such a record must forget this offset too."""
    forge = LogForge(1 << 16)
    for number in range(40):
        fields = RecordFields("t", b"", {"KEYS": "k"}, queue_offset=number)
        offset = forge.make_room(400)
        inner_at = offset + body_position(fields)
        first = encode_record(replace(fields, topic="forged", physical_offset=inner_at))
        second = encode_record(replace(fields, topic="forged", physical_offset=1 << 40))
        forge.put_bytes(encode_record(replace(fields, body=first + second, physical_offset=offset)))
    for split_size in (91, 150, 1000):
        folder = tmp_path / str(split_size)
        rebuild_log(folder, forge.files(), split_size=split_size)
        assert_oracle(folder / "out", walk(forge.files()), SMALL)


def test_one_record_may_be_longer_than_many_splits(tmp_path: Path) -> None:
    fields = RecordFields("t", b"", {"KEYS": "a b"})
    forge = LogForge(1 << 17)
    for number, body_bytes in enumerate((5, 50_000, 0, 70_000, 3)):
        forge.put(replace(fields, body=b"b" * body_bytes, queue_offset=number))
    rebuild_log(tmp_path, forge.files(), split_size=1000)
    assert_oracle(tmp_path / "out", walk(forge.files()), SMALL)


@pytest.mark.parametrize("split_size", [91, None])
def test_topics_that_are_no_folder_names_are_indexed_and_told(
    split_size: int | None, tmp_path: Path
) -> None:
    topics = ["../x", "", "a/b", "..", ".", "a\0b", "/etc", "fine", "主" * 42]
    forge = LogForge(8192)
    for number, topic in enumerate(topics * 2):
        queue_offset = number // len(topics)
        forge.put(RecordFields(topic, properties={"KEYS": "k"}, queue_offset=queue_offset))
    report = rebuild_log(tmp_path, forge.files(), split_size=split_size)
    assert_oracle(tmp_path / "out", walk(forge.files()), SMALL)
    assert {path.name for path in tmp_path.iterdir()} == {"store", "out"}
    (note,) = report.notes
    assert note == "no ConsumeQueue for topics that cannot name a folder: '', '.', '..'"
    assert report.queues == sum(map(is_folder_name, topics))


def test_names_that_are_one_string_to_java_are_one_queue(tmp_path: Path) -> None:
    forge = LogForge(4096)
    topics: tuple[str | bytes, ...] = (b"a\xff", b"a\xfe", "a\ufffd", b"a\xff")
    for number, topic in enumerate(topics):
        forge.put(RecordFields(topic, queue_offset=number))
    for split_size in (91, None):
        rebuild_log(tmp_path / str(split_size), forge.files(), split_size=split_size)
        output = tmp_path / str(split_size) / "out"
        assert_oracle(output, walk(forge.files()), SMALL)
        assert [path.name for path in (output / "consumequeue").iterdir()] == ["a\ufffd"]


def test_more_queues_than_a_process_may_have_open_files(tmp_path: Path) -> None:
    forge = LogForge(1 << 20)
    for number in range(3000):
        forge.put(
            RecordFields(f"t{number % 1500}", queue_id=number % 2, queue_offset=number // 3000)
        )
    rebuild_log(tmp_path, forge.files())
    assert_oracle(tmp_path / "out", walk(forge.files()), SMALL)
