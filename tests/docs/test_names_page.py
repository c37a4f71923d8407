"""docs/names.md: the names of reput on this page exist, and the page has the names that RocketMQ's store uses."""

import re
from importlib import import_module

import pytest

from tests.docs.pages import CHECKOUT

PAGE = (CHECKOUT / "docs" / "names.md").read_text(encoding="utf-8")
_NAME = re.compile(r"`(reput(?:\.\w+)+)`")
SEEDS = CHECKOUT.parent / "shared" / "seed-names.txt"


def _mro(found: object) -> tuple[type, ...]:
    return found.__mro__ if isinstance(found, type) else ()


def exists(name: str) -> bool:
    """Return whether a dotted name is a module, or an attribute of a module or of a class in one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            # A field of a dataclass without a default is an annotation, not an attribute.
            if not hasattr(found, part):
                return any(part in vars(kind).get("__annotations__", {}) for kind in _mro(found))
            found = getattr(found, part)
        return True
    return False


def test_every_name_of_reput_exists() -> None:
    names = set(_NAME.findall(PAGE))
    assert len(names) > 60
    assert [name for name in sorted(names) if not exists(name)] == []


def test_a_name_that_does_not_exist_is_noticed() -> None:
    assert exists("reput.format.index_file.IndexItem.previous")
    assert not exists("reput.format.index_file.IndexItem.pre_index_no")
    assert not exists("reput.no_such_room")


def test_the_names_that_readers_look_for_are_there() -> None:
    for name in (
        "ReputMessageService", "CommitLogDispatcherBuildIndex", "IndexFile.putKey", "timeDiff",
        "IndexFile.selectPhyOffset", "preIndexNo", "FlushConsumeQueueService", "StoreCheckpoint",
    ):  # fmt: skip
        assert f"`{name}`" in PAGE, name


# What articles on the store name, apart from the list that is beside some checkouts.
_IN_ARTICLES = """
hold release isSuccess getMsgSize getBufferSize slotPos timeRead nextIndexToRead lastFlushTimestamp maxNum getData
setBeginTimestamp setEndTimestamp setBeginPhyOffset setEndPhyOffset keyHashRead phyOffsetRead prevIndexRead nextIndex
getMinOffset isTimeMatched findConsumeQueue MappedFileQueue mappedFileSize logicOffset rollNextFile doDispatch
BLANK_MAGIC_CODE indexCount getMinLogicOffset expectLogicOffset fileFromOffset wrotePosition flushedPosition
findMappedFileByOffset getLastMappedFile getIndexCount getUniqKey getPropertiesMap getPreparedTransactionOffset
selectOneMessageByOffset nextBeginOffset isTempFileExist recoverTopicQueueTable getMessageTotalInQueue OS_PAGE_SIZE
""".split()  # noqa: SIM905


def test_names_in_articles_lead_somewhere() -> None:
    words = set(re.findall(r"\w+", PAGE))
    assert [name for name in _IN_ARTICLES if name not in words] == []


def row_of(name: str) -> str:
    """Return the row whose first column has a name."""
    return next(line for line in PAGE.splitlines() if re.match(rf"\|[^|]*`(\w+\.)*{name}`", line))


def test_rows_with_a_position_a_size_or_a_formula_are_right() -> None:
    from reput.format import commit_log, consume_queue, index_file
    from reput.format.consume_queue import ENTRY_BYTES
    from reput.io.mapped_writer import MappedWriter

    # Positions of the header's fields: each is the place of its value in an encoded header.
    header = index_file.IndexHeader(*range(1, 7))
    data = index_file.encode_header(header)
    places = [data.index(bytes([n]), 0 if n < 2 else 8 * (min(n, 5) - 1)) for n in range(1, 7)]
    begins = [7, 15, 23, 31, 35, 39]  # of the last byte of each field
    assert places == begins
    assert "Bytes 0, 8, 16, 24, 32 and 36" in row_of("beginTimestampIndex")
    assert [place - width + 1 for place, width in zip(places, (8, 8, 8, 8, 4, 4), strict=True)] == [
        0, 8, 16, 24, 32, 36,
    ]  # fmt: skip
    for name, size in (
        ("CQ_STORE_UNIT_SIZE", ENTRY_BYTES), ("INDEX_HEADER_SIZE", index_file.HEADER_BYTES),
    ):  # fmt: skip
        assert f"| {size}. |" in row_of(name)
    assert f"{index_file.SLOT_BYTES} and {index_file.ITEM_BYTES}." in row_of("hashSlotSize")
    assert f"0x{commit_log.BLANK_MAGIC & 0xFFFFFFFF:08X}" in row_of("BLANK_MAGIC_CODE")
    assert f"0x{commit_log.MESSAGE_MAGIC & 0xFFFFFFFF:08X}" in row_of("MESSAGE_MAGIC_CODE")
    # A queue offset of 3 is the logical offset 60: three entries lie before it.
    before = b"".join(map(consume_queue.encode_entry, [consume_queue.PRE_BLANK] * 3))
    assert len(before) == 3 * 20
    assert "multiplied by 20" in row_of("logicOffset")
    assert index_file.slot_position(0) == index_file.HEADER_BYTES
    assert index_file.item_position(5, 0) == 40 + 5 * 4
    # Two dirty pages of 4,096 bytes are due at a limit of two pages, one is not.
    assert MappedWriter.is_worth_a_flush(0, 8192, 2, 1 << 20)
    assert not MappedWriter.is_worth_a_flush(0, 4096, 2, 1 << 20)
    assert "4,096" in row_of("OS_PAGE_SIZE")


# Names without a counterpart in reput.
_NOT_MIRRORED = {
    "MASTER_ID", "MAX_TRY_IDX_CREATE", "RETRY_TIMES_OVER", "getBrokerId", "isEnableDLegerCommitLog",
}  # fmt: skip


def test_the_names_stand_in_the_source_too() -> None:
    """A search of the source for a name of RocketMQ's finds what mirrors it."""
    source = "".join(path.read_text(encoding="utf-8") for path in (CHECKOUT / "src").rglob("*.py"))
    words = set(re.findall(r"\w+", source))
    first = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    names = {
        name.rpartition(".")[2]
        for cell in first
        for name in re.findall(r"`([\w.]+)`", cell)
        if "mqadmin" not in cell and "executeDeleteFilesManually" not in cell
    }
    assert len(names) > 200
    assert sorted(names - words - _NOT_MIRRORED) == []


def test_every_name_of_the_store_that_a_reader_may_know_leads_somewhere() -> None:
    if not SEEDS.exists():
        pytest.skip("the list of names is not here")
    names = [name for name in SEEDS.read_text().split("\n") if name and not name.startswith("#")]
    words = set(re.findall(r"\w+", PAGE))
    assert len(names) > 100
    assert [name for name in names if name not in words] == []
