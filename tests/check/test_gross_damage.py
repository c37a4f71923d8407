"""Gross damage: a file that is missing, cut, empty or exchanged. Every quick answer about the store says so.

The quick check, `reput fleet`, its output for Nagios and Prometheus, and the console ask one function. The first test
tries each damage at each place with it. The others try one place of each damage with everything else.
"""

import json
import os
import shutil
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from reput import Message, open_store
from reput.base.findings import Finding, Kind, Severity
from reput.cli.main import DAMAGED
from reput.engine.check.run import check_store
from reput.errors import ReputError
from reput.io.writer import exchange
from tests.check.test_quick_damage import is_grave
from tests.cli.running import reput
from tests.console.serving import console, lines_of
from tests.golden.sparse import copy_file, copy_store
from tests.golden.stores import GoldenStore
from tests.small import SMALL_16K

Golden = Callable[[str], GoldenStore]
QUEUE = "consumequeue/shipments/1"


def first(folder: Path) -> Path:
    return min(folder.iterdir())


def middle(folder: Path) -> Path:
    files = sorted(folder.iterdir())
    return files[len(files) // 2]


def last(folder: Path) -> Path:
    return max(folder.iterdir())


def gone(file: Path) -> None:
    file.unlink()


def empty(file: Path) -> None:
    file.write_bytes(b"")


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 40 * 20])


def cut_inside_an_entry(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2 + 7])


def exchanged(file: Path) -> None:
    other = next(one for one in sorted(file.parent.iterdir()) if one != file)
    ours, theirs = file.read_bytes(), other.read_bytes()
    file.write_bytes(theirs)
    other.write_bytes(ours)


def of_another_store(file: Path) -> None:
    """Put an IndexFile here whose items lead to places of another log: all offsets are shifted."""
    data = bytearray(file.read_bytes())
    slots, items = 4 * 1000, (len(data) - 40 - 4000) // 20
    for at in (16, 24, *(40 + slots + 20 * n + 4 for n in range(1, items))):
        offset = int.from_bytes(data[at : at + 8], "big")
        data[at : at + 8] = (offset + 17 if offset else 0).to_bytes(8, "big")
    file.write_bytes(data)


def of_another_queue(file: Path) -> None:
    shutil.copyfile(file.parents[2] / "orders" / "0" / f"{0:020}", file)


Damage = tuple[str, Callable[[Path], Path], Callable[[Path], None]]
DAMAGES: Mapping[str, Damage] = {
    f"{folder.split('/')[0]}-{place.__name__}-{how.__name__}": (folder, place, how)
    for folder, places in {
        QUEUE: (first, middle, last), "index": (first, middle, last), "commitlog": (middle, last),
    }.items()
    for place in places
    for how in (gone, empty, cut, cut_inside_an_entry, exchanged)
} | {
    "queue-of-another": (QUEUE, middle, of_another_queue),
    "index-of-another-store": ("index", middle, of_another_store),
}  # fmt: skip
EACH_ONCE = [name for name in DAMAGES if "middle" in name or "another" in name]


@contextmanager
def damaged(store: Path, name: str) -> Iterator[None]:
    """Damage a store, and put it back afterwards."""
    folder, place, how = DAMAGES[name]
    before = {file: file.read_bytes() for file in (store / folder).iterdir()}
    how(place(store / folder))
    try:
        yield
    finally:
        for file, data in before.items():
            file.write_bytes(data)


@pytest.fixture
def store(golden: Golden, tmp_path: Path) -> Path:
    return copy_store(golden("orders").path, tmp_path / "store")


def has_damage(findings: list[Finding]) -> bool:
    return any(one.severity is Severity.DAMAGE for one in findings)


def test_a_quick_check_finds_each_damage_at_each_place(store: Path) -> None:
    assert list(check_store(store, quick=True)) == []
    for name in DAMAGES:
        with damaged(store, name):
            assert has_damage(list(check_store(store, quick=True))), name
    assert list(check_store(store, quick=True)) == []


@pytest.mark.slow
def test_a_quick_check_says_what_the_full_one_says_of_the_next_start(store: Path) -> None:
    for name in DAMAGES:
        with damaged(store, name):
            quick = list(check_store(store, quick=True))
            refused = [one for one in check_store(store) if one.at_next_start == "does not start"]
            assert refused == [one for one in quick if one.at_next_start == "does not start"]


def check_surfaces(stores: list[str]) -> None:
    """Check that fleet, Nagios, Prometheus and the console call each of these stores damaged."""
    ran = reput("fleet", *stores, "--format", "jsonl")
    rows = [json.loads(line) for line in ran.lines]
    assert [row["state"] for row in rows if "state" in row] == ["damaged"] * len(stores)
    assert all(row["unread"]["log_bytes"] for row in rows if "unread" in row)
    assert ran.code == DAMAGED
    ran = reput("fleet", *stores, "--format", "prometheus")
    for store in stores:
        assert f'reput_store_state{{store="{store}"}} 2' in ran.lines
    ran = reput("check", "--quick", *stores, "--format", "nagios")
    assert ran.out.startswith("REPUT CRITICAL")
    assert ran.code == 2
    for store in stores:
        assert any(line.startswith(f"{store}: damaged: ") for line in ran.lines)
    with console({Path(path).name: Path(path) for path in stores}) as client:
        for store in stores:
            end = lines_of(client.get("/api/check", params={"store": Path(store).name}).text)[-1]
            assert end["valid"] is False, store


def test_fleet_and_monitoring_report_each_damage(golden: Golden, tmp_path: Path) -> None:
    stores = []
    for name in EACH_ONCE:
        path = copy_store(golden("orders").path, tmp_path / name)
        folder, place, how = DAMAGES[name]
        how(place(path / folder))
        stores.append(str(path))
    check_surfaces(stores)


def test_a_lost_last_queue_file_is_found_in_each_queue(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("basic").path, tmp_path / "store")
    for queue in sorted((store / "consumequeue").glob("Topic*/*")):
        lost = max(queue.iterdir())
        data = lost.read_bytes()
        lost.unlink()
        if any(queue.iterdir()):
            found = [one for one in check_store(store, quick=True) if one.file == str(queue)]
            assert [one.kind for one in found] == [Kind.MISSING_QUEUE_ENTRY], queue
        lost.write_bytes(data)


QUEUE_FOLDERS = ("consumequeue", "batchconsumequeue")


@pytest.mark.every_case
@pytest.mark.parametrize("name", ["lmq", "five_ext", "five_batch", "five_life"])
def test_a_queue_that_has_lost_its_only_file_is_not_called_valid(
    golden: Golden, tmp_path: Path, name: str
) -> None:
    store = copy_store(golden(name).path, tmp_path / "store")
    assert not any(one.is_wrong for one in check_store(store, quick=True))
    queues = [one for folder in QUEUE_FOLDERS for one in sorted((store / folder).glob("*/*"))]
    single = [queue for queue in queues if len(list(queue.iterdir())) == 1]
    assert single
    for queue in single:
        (lost,) = queue.iterdir()
        lost.rename(tmp_path / "lost")
        kinds = {one.kind for one in check_store(store, quick=True) if one.file == str(queue)}
        assert kinds & {Kind.EMPTY_QUEUE, Kind.MISSING_QUEUE, Kind.MISSING_QUEUE_ENTRY}, queue
        (tmp_path / "lost").rename(lost)


def test_exchanged_folders_of_queues_with_further_messages_are_found(
    golden: Golden, tmp_path: Path
) -> None:
    """Messages of these queues name further queues (INNER_MULTI_DISPATCH), but not every other queue."""
    store = copy_store(golden("lmq").path, tmp_path / "store")
    queues = sorted((store / "consumequeue").glob("*/*"))
    assert len(queues) > 10
    for ours, theirs in pairwise(queues):
        exchange(ours, theirs)
        found = {one.file for one in check_store(store, quick=True) if one.is_wrong}
        # A message may name several light queues, so the last message of one may be in the other.
        may_share = all(queue.parent.name.startswith("%LMQ%") for queue in (ours, theirs))
        assert found & {str(ours), str(theirs)} or may_share, (ours, theirs)
        exchange(ours, theirs)


def test_a_missing_log_file_is_named(store: Path) -> None:
    lost = middle(store / "commitlog")
    lost.unlink()
    for quick in (True, False):
        (missing,) = (
            one for one in check_store(store, quick=quick) if one.kind is Kind.MISSING_LOG_FILE
        )
        assert missing.file == str(lost)
        assert (missing.start, missing.length) == (int(lost.name), 1 << 20)


def test_files_that_a_broker_has_begun_are_no_damage(store: Path) -> None:
    """A broker creates the next file of the log in advance, and the next file of a queue before its first entry."""
    for folder in ("commitlog", QUEUE):
        newest = last(store / folder)
        size = newest.stat().st_size
        newest.with_name(f"{int(newest.name) + size:020}").write_bytes(bytes(size))
    assert list(check_store(store, quick=True)) == []


def test_the_cost_of_a_quick_check_is_that_of_a_listing_and_a_few_reads_per_queue(
    tmp_path: Path,
) -> None:
    """Count the files that it opens and the folders that it lists: the same few per queue, whatever their number."""
    calls = Counter[str]()
    is_counted = False

    def hook(event: str, _arguments: object) -> None:
        if is_counted and event in ("open", "os.listdir", "os.scandir"):
            calls[event] += 1

    sys.addaudithook(hook)  # Hooks stay for ever, so this one has a switch.
    counts = []
    for queues in (20, 60):
        store = tmp_path / str(queues)
        with open_store(store, "rw", config=SMALL_16K) as opened:
            opened.put_many(
                [Message("T", b"x", queue_id=number % queues) for number in range(5 * queues)]
            )
        calls.clear()
        is_counted = True
        assert list(check_store(store, quick=True)) == []
        is_counted = False
        counts.append(calls.total())
    assert 0 < counts[1] - counts[0] <= 40 * 12


def cut_to(share: float, rest: int) -> Callable[[Path], None]:
    def cut(file: Path) -> None:
        os.truncate(file, int(file.stat().st_size * share) + rest)

    return cut


HOW = {"gone": gone, "empty": empty, "half": cut_to(0.5, 0), "inside": cut_to(0.5, 7)}


def quick_or_refused(store: Path, *, quick: bool = True) -> list[Finding] | None:
    """Return wrong findings, or None if the check is refused with an error."""
    try:
        return [one for one in check_store(store, quick=quick) if one.is_wrong]
    except ReputError:
        return None


def edges(paths: list[Path]) -> list[Path]:
    """Return the first and the last one of some paths."""
    return sorted({*paths[:1], *paths[-1:]})


def noticed_of_each_file(store: Path, aside: Path) -> int:
    """Damage files of each folder of a store, or of two of its folders, in each way. Return how many are noticed.

    Where a quick check finds nothing, the full check must not find that a broker does not start, or that messages are
    lost. The oldest file of the log is left in place, because brokers delete it when it expires.
    """
    noticed = 0
    assert quick_or_refused(store) == []
    folders: dict[str, list[Path]] = {}
    for folder in sorted({path.parent for path in store.rglob("*") if path.is_file()}):
        folders.setdefault(f"{folder.relative_to(store)}/".partition("/")[0], []).append(folder)
    for folder in (folder for every in folders.values() for folder in edges(every)):
        files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != "lock")
        expiring = {files[0]} if folder.name == "commitlog" else set()
        for file in set(edges(files)) - expiring:
            for name, harm in HOW.items():
                copy_file(file, aside)
                inode = file.rename(aside.with_name("kept"))
                copy_file(aside, file)
                harm(file)
                if quick_or_refused(store) != []:
                    noticed += 1
                else:
                    full = quick_or_refused(store, quick=False)
                    assert full is not None, (file, name)
                    assert not any(map(is_grave, full)), (file, name, full)
                inode.replace(file)
    return noticed


FORMS = ("five_batch", "five_ext", "five_rocksdb", "five_timer")
"""Stores of 5.3.3 with batch queues, extension files, queues in RocksDB, and timers."""


@pytest.mark.every_case
@pytest.mark.parametrize("name", FORMS)
def test_a_quick_check_notices_lost_and_cut_files_of_each_form_of_stores(
    golden: Golden, tmp_path: Path, name: str
) -> None:
    store = copy_store(golden(name).path, tmp_path / "store")
    assert noticed_of_each_file(store, tmp_path / "aside") > 10


GOLDEN_5_4 = Path(__file__).parents[2].parent / "shared" / "golden54"


@pytest.mark.skipif(not GOLDEN_5_4.exists(), reason="needs ../shared/golden54 beside the checkout")
@pytest.mark.parametrize("name", ["nouniq", "timer54", "trans54", "comb"])
def test_a_quick_check_notices_lost_and_cut_files_of_a_store_of_5_4(
    tmp_path: Path, name: str
) -> None:
    with tarfile.open(GOLDEN_5_4 / f"five4_{name}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    assert noticed_of_each_file(tmp_path / name, tmp_path / "aside") > 10


def test_monitoring_reports_damage_in_each_form_of_stores(golden: Golden, tmp_path: Path) -> None:
    """Fleet, Nagios, Prometheus and the console ask one function, whatever the form of a store is."""
    harms = {
        "five_batch": "batchconsumequeue/*/0/*", "five_ext": "consumequeue_ext/*/0/*",
        "five_rocksdb": "consumequeue/CURRENT", "five_timer": "timerlog/00000000000000005200",
    }  # fmt: skip
    stores = []
    for name, pattern in harms.items():
        stores.append(copy_store(golden(name).path, tmp_path / name))
        min(stores[-1].glob(pattern)).unlink()
    check_surfaces([str(store) for store in stores])
