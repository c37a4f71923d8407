"""Damaged logs: everything that the broker would dispatch is rebuilt, and every lost byte is reported."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from reput.base.findings import Kind
from reput.errors import FormatError, StoreNotFoundError
from tests.oracle import forge
from tests.oracle.forge import Files, LogForge, RecordFields, encode_record, forge_log, write_store
from tests.oracle.random_logs import LogOptions, random_log
from tests.oracle.walk import walk
from tests.rebuild.rebuilding import (
    SMALL,
    assert_files,
    assert_log_end,
    assert_oracle,
    damage_of,
    expected_files,
    rebuild,
    rebuild_log,
)

FILE_BYTES = 2048
FIELDS = RecordFields("topic", b"x" * 50, {"KEYS": "K1 K2", "UNIQ_KEY": "U", "TAGS": "t"})
SIZE = len(encode_record(FIELDS))
SEEDS = 80
SLOW_SEEDS = 2000


def log_of(count: int, start_offset: int = 0) -> LogForge:
    fields = [replace(FIELDS, queue_offset=number) for number in range(count)]
    return forge_log(fields, file_bytes=FILE_BYTES, start_offset=start_offset)


def check(folder: Path, files: Files, split_size: int | None = None) -> None:
    report = rebuild_log(folder, files, split_size=split_size)
    found = walk(files)
    assert_oracle(folder / "out", found, SMALL)
    assert report.messages == len(found.records)
    assert damage_of(report) == [(damage.offset, damage.length) for damage in found.damage]
    assert_log_end(report, found)
    for damage in report.damage:
        line = str(damage)
        assert "\n" not in line
        assert f"offset {damage.physical_offset}: {damage.length} bytes lost" in line


def damaged(random: Random, files: Files, offsets: list[int]) -> Files:
    """Return the log files with one random damage. The fields that determine a message's queue stay intact."""
    record = random.choice(offsets)
    match random.choice(("size", "magic", "zeros", "cut", "bytes", "body", "file")):
        case "size":
            total = random.choice((-1, 0, 7, 100, 5000, 2**31 - 1, random.randrange(1, 900)))
            return forge.set_total_size(files, record, total)
        case "magic":
            return forge.flip_bit(files, record + 4 + random.randrange(4), random.randrange(8))
        case "zeros":
            return forge.zero_fill(files, record + random.randrange(20), random.randrange(1, 300))
        case "cut":
            return forge.truncate(files, record + random.randrange(1, 91))
        case "bytes":
            return forge.overwrite(files, record + random.randrange(28, 90), random.randbytes(4))
        case "body":
            length = random.choice((-1, 0, 5, 400, 2000, 2**31 - 1))
            return forge.overwrite(files, record + 84, length.to_bytes(4, "big", signed=True))
    kept = random.randrange(len(files))
    return [*files[:kept], (files[kept][0], random.choice((b"", bytes(700))))]


def check_random(seed: int, folder: Path) -> None:
    random = Random(seed)
    options = LogOptions(
        records=random.choice((5, 40, 80)),
        file_bytes=random.choice((1024, 4096)),
        start_offset=random.choice((0, 8192)),
        queue_start=random.choice((0, 13)),
    )
    log = random_log(seed, options)
    files = log.files
    for _ in range(random.choice((1, 1, 2, 3))):
        known = [at for at in log.offsets if any(s <= at < s + len(d) - 8 for s, d in files)]
        files = damaged(random, files, known) if known else files
    check(folder, files, random.choice((1, 91, 100, 1000, None)))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_damage(seed: int, tmp_path: Path) -> None:
    check_random(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_much_random_damage(tmp_path: Path) -> None:
    for seed in range(SEEDS, SLOW_SEEDS):
        check_random(seed, tmp_path / str(seed))


SPLIT_SIZES = pytest.mark.parametrize("split_size", [None, 91, SIZE])


@SPLIT_SIZES
def test_damage_costs_the_rest_of_its_file(split_size: int | None, tmp_path: Path) -> None:
    log = log_of(30)
    files = forge.flip_bit(log.files(), 3 * SIZE + 4, 0)
    check(tmp_path, files, split_size)
    report = rebuild(tmp_path / "store", tmp_path / "out", split_size=split_size)
    (damage,) = report.damage
    assert (damage.physical_offset, damage.length) == (3 * SIZE, FILE_BYTES - 3 * SIZE)
    assert damage.file == str(tmp_path / "store" / "commitlog" / f"{0:020d}")
    assert report.messages == 30 - sum(3 * SIZE <= o < FILE_BYTES for o in log.offsets)


@SPLIT_SIZES
@pytest.mark.parametrize("total_size", [SIZE + 1, FILE_BYTES, 10 * FILE_BYTES, 2**31 - 1])
def test_a_wrong_total_size_costs_its_record_wherever_it_is(
    total_size: int, split_size: int | None, tmp_path: Path
) -> None:
    log = log_of(16)
    for number in (0, 5, len(log.offsets) - 2):
        folder = tmp_path / str(number)
        check(
            folder, forge.set_total_size(log.files(), log.offsets[number], total_size), split_size
        )
        report = rebuild(folder / "store", folder / "out", split_size=split_size)
        assert damage_of(report) == [(log.offsets[number], SIZE)]
        assert report.messages == 15


@SPLIT_SIZES
def test_a_body_that_says_to_reach_past_its_file_hides_nothing(
    split_size: int | None, tmp_path: Path
) -> None:
    log = log_of(16)
    last_file = log.files()[-1][0]
    at = next(offset for offset in log.offsets if offset >= last_file)
    files = forge.overwrite(log.files(), at + 84, (1 << 20).to_bytes(4, "big"))
    check(tmp_path, files, split_size)
    report = rebuild(tmp_path / "store", tmp_path / "out", split_size=split_size)
    assert damage_of(report) == [(at, FILE_BYTES)], "records follow it, so it is not the end"


def test_a_record_longer_than_what_is_read_at_a_time_hides_nothing(tmp_path: Path) -> None:
    """Near the end of the file, the walk asks for more bytes than the file has left."""
    file_bytes = 12 << 20
    log = forge_log(
        [replace(FIELDS, body=b"b" * (1 << 20), queue_offset=n) for n in range(9)],
        file_bytes=file_bytes,
    )
    files = forge.overwrite(log.files(), log.offsets[3] + 84, (2**31 - 1).to_bytes(4, "big"))
    for split_size in (None, 1 << 20):
        folder = tmp_path / str(split_size)
        check(folder, files, split_size)
        report = rebuild(folder / "store", folder / "out", split_size=split_size)
        assert damage_of(report) == [(log.offsets[3], file_bytes - log.offsets[3])]


@SPLIT_SIZES
def test_a_record_hidden_by_a_wrong_length_at_the_tail_is_told(
    split_size: int | None, tmp_path: Path
) -> None:
    """The second last record claims the last one as part of its body, and all lengths add up."""
    log = log_of(5)
    *_, claimer, hidden = log.offsets
    body_length = len(FIELDS.body) + SIZE
    files = forge.overwrite(log.files(), claimer + 84, body_length.to_bytes(4, "big"))
    check(tmp_path, files, split_size)
    report = rebuild(tmp_path / "store", tmp_path / "out", split_size=split_size)
    assert damage_of(report)[0] == (claimer, 2 * SIZE)
    salvaged = rebuild(tmp_path / "store", tmp_path / "saved", split_size=split_size, salvage=True)
    assert (claimer, hidden - claimer) in damage_of(salvaged)
    assert salvaged.messages == 4


@SPLIT_SIZES
@pytest.mark.parametrize("cut", [50, 100, SIZE - 4])
def test_a_torn_tail_is_the_end_of_the_log(
    cut: int, split_size: int | None, tmp_path: Path
) -> None:
    log = log_of(12)
    last = log.offsets[-1]
    torn = forge.zero_fill(log.files(), last + SIZE - cut, cut)
    for number, files in enumerate((torn, forge.truncate(log.files(), last + SIZE - cut))):
        check(tmp_path / str(number), files, split_size)
        report = rebuild(tmp_path / str(number) / "store", tmp_path / str(number) / "out")
        assert (report.log_end, report.messages, report.damage) == (last, 11, [])
        assert report.torn_tail


def test_a_log_that_ends_well_is_not_torn(tmp_path: Path) -> None:
    log = log_of(12)
    files = [*log.files(), (log.files()[-1][0] + FILE_BYTES, bytes(FILE_BYTES))]
    check(tmp_path, files)
    report = rebuild(tmp_path / "store", tmp_path / "out")
    assert not report.torn_tail
    assert report.log_end == log.end_offset


@SPLIT_SIZES
def test_a_zero_filled_file_in_the_middle_is_damage_and_at_the_end_nothing(
    split_size: int | None, tmp_path: Path
) -> None:
    files = log_of(40).files()
    check(tmp_path / "middle", forge.zero_fill(files, FILE_BYTES, FILE_BYTES), split_size)
    last = files[-1][0]
    check(tmp_path / "end", forge.zero_fill(files, last, FILE_BYTES), split_size)


@SPLIT_SIZES
def test_a_missing_file_is_told_with_its_bytes(split_size: int | None, tmp_path: Path) -> None:
    files = log_of(40).files()
    check(tmp_path, [files[0], *files[2:]], split_size)
    report = rebuild(tmp_path / "store", tmp_path / "out")
    (damage,) = report.damage
    assert (damage.start, damage.stop) == (FILE_BYTES, 2 * FILE_BYTES)
    assert damage.kind is Kind.MISSING_LOG_FILE
    assert damage.detail == "no file contains these offsets"


def test_a_missing_file_before_one_that_was_never_used_is_told_too(tmp_path: Path) -> None:
    """A broker creates a file when it begins to use the previous one."""
    files = log_of(4).files()
    write_store(tmp_path / "store", [*files, (2 * FILE_BYTES, bytes(FILE_BYTES))])
    report = rebuild(tmp_path / "store", tmp_path / "out")
    assert damage_of(report) == [(FILE_BYTES, FILE_BYTES)]


@pytest.mark.parametrize("length", [0, 1, 7, 8, 90])
def test_files_too_short_for_a_record(length: int, tmp_path: Path) -> None:
    files = log_of(20).files()
    check(tmp_path / "middle", [files[0], (FILE_BYTES, files[1][1][:length]), *files[2:]])
    check(tmp_path / "last", [files[0], (FILE_BYTES, files[1][1][:length])])
    check(tmp_path / "only", [(FILE_BYTES, files[1][1][:length])])


@SPLIT_SIZES
def test_a_log_without_a_message(split_size: int | None, tmp_path: Path) -> None:
    for name, content in (("zeros", bytes(FILE_BYTES)), ("noise", b"noise" * 300), ("empty", b"")):
        check(tmp_path / name, [(4096, content)], split_size)
        report = rebuild(tmp_path / name / "store", tmp_path / name / "out")
        assert (report.messages, report.index_files, report.log_end) == (0, 0, 4096)
        assert report.torn_tail == (name == "noise")
    blank = LogForge(FILE_BYTES)
    blank.end_file()
    check(tmp_path / "blank", blank.files(), split_size)


def test_noise_in_more_files_than_the_last_is_damage(tmp_path: Path) -> None:
    noise = [(number * 100, b"noise" * 20) for number in range(3)]
    check(tmp_path, noise)
    report = rebuild(tmp_path / "store", tmp_path / "out")
    assert damage_of(report) == [(0, 100), (100, 100)]


@SPLIT_SIZES
def test_an_expired_head(split_size: int | None, tmp_path: Path) -> None:
    check(tmp_path, log_of(40, start_offset=5 * FILE_BYTES).files(), split_size)
    report = rebuild(tmp_path / "store", tmp_path / "out")
    assert (report.log_begin, report.damage) == (5 * FILE_BYTES, [])


@SPLIT_SIZES
def test_salvage_goes_on_at_the_next_record_that_proves_itself(
    split_size: int | None, tmp_path: Path
) -> None:
    log = log_of(30)
    bad = [log.offsets[number] for number in (1, 2, 9, 20)]
    files = log.files()
    for offset in bad:
        files = forge.flip_bit(files, offset + 4, 3)
    write_store(tmp_path / "store", files)
    report = rebuild(tmp_path / "store", tmp_path / "out", split_size=split_size, salvage=True)
    assert report.messages == 26
    assert damage_of(report) == [(bad[0], 2 * SIZE), (bad[2], SIZE), (bad[3], SIZE)]
    records = [record for offset, record in walk(log.files()).records if offset not in bad]
    assert_files(tmp_path / "out", expected_files(records, SMALL))


@SPLIT_SIZES
def test_salvage_believes_no_record_of_another_place(
    split_size: int | None, tmp_path: Path
) -> None:
    log = log_of(10)
    files = forge.flip_bit(log.files(), log.offsets[2] + 4, 0)
    # A byte of the physical offset that the record states.
    files = forge.flip_bit(files, log.offsets[3] + 28 + 7, 0)
    files = forge.flip_bit(files, log.offsets[4] + 90, 0)  # a byte of its body
    write_store(tmp_path / "store", files)
    report = rebuild(tmp_path / "store", tmp_path / "out", split_size=split_size, salvage=True)
    assert damage_of(report) == [(log.offsets[2], 3 * SIZE)]
    assert report.messages == 7


def test_files_that_overlap_are_refused(tmp_path: Path) -> None:
    (_, data), *_ = log_of(4).files()
    write_store(tmp_path / "store", [(0, data), (100, data)])
    with pytest.raises(FormatError, match=f"overlaps .*, which ends at {FILE_BYTES}"):
        rebuild(tmp_path / "store", tmp_path / "out")


@pytest.mark.parametrize("content", [None, [], ["notes.txt", "123", "1" * 21]])
def test_what_is_no_store_is_told(content: list[str] | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "store" / "commitlog").mkdir(parents=True)
        for name in content:
            (tmp_path / "store" / "commitlog" / name).touch()
    with pytest.raises(StoreNotFoundError) as refused:
        rebuild(tmp_path / "store", tmp_path / "out")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_files_that_are_no_log_are_left_alone(tmp_path: Path) -> None:
    files = log_of(12).files()
    write_store(tmp_path / "store", files)
    (tmp_path / "store" / "commitlog" / "notes.txt").write_text("mine")
    rebuild(tmp_path / "store", tmp_path / "out")
    assert_oracle(tmp_path / "out", walk(files), SMALL)
    assert (tmp_path / "store" / "commitlog" / "notes.txt").read_text() == "mine"
