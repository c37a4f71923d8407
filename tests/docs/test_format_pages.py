"""The worked examples of docs/format agree with the files and with reput.format."""

import re
import struct
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from reput.format import checkpoint, commit_log, consume_queue, file_names, index_file, properties
from tests.docs.pages import CHECKOUT, FORMAT_PAGES, Example, examples, hex_dump, shows
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]

PAGES = sorted(FORMAT_PAGES.glob("*.md"))
EXAMPLES = [example for page in PAGES for example in examples(page)]
MINIMUM_EXAMPLES = {
    "checkpoint-and-markers.md": 1,
    "commit-log.md": 2,
    "consume-queue.md": 1,
    "index-file.md": 6,
    "properties-and-keys.md": 1,
}


def data_of(example: Example, golden: Golden) -> bytes:
    content = (golden(example.store).path / example.file).read_bytes()
    return content[example.start : example.start + example.length]


def decoded(example: Example, data: bytes, hash_slots: int) -> list[tuple[str, str]]:
    """Return (field, value) of every row, as reput.format decodes the example's bytes."""
    folder = example.file.partition("/")[0]
    if example.page == "properties-and-keys.md":
        return property_rows(data)
    if folder == "commitlog":
        return blank_rows(data) if len(data) < commit_log.MIN_RECORD_BYTES else record_rows(data)
    if folder == "consumequeue":
        entry = consume_queue.decode_entry(data)
        return list(zip(("physical offset", "size", "tags code"), map(str, entry), strict=True))
    if folder == "index":
        return index_rows(example, data, hash_slots)
    values = map(str, checkpoint.decode_checkpoint(data).times)
    return list(zip(("CommitLog", "ConsumeQueue", "IndexFile"), values, strict=True))


def record_rows(data: bytes) -> list[tuple[str, str]]:
    message = commit_log.decode(data)
    assert message.body_crc_ok
    pairs = ", ".join(f"{name}={value}" for name, value in message.properties.items())
    return [
        ("TOTALSIZE", str(message.size_bytes)),
        ("MAGIC", str(message.magic)),
        ("BODYCRC", str(message.body_crc)),
        ("QUEUEID", str(message.queue_id)),
        ("FLAG", str(message.flag)),
        ("QUEUEOFFSET", str(message.queue_offset)),
        ("PHYSICALOFFSET", str(message.physical_offset)),
        ("SYSFLAG", str(message.sys_flag)),
        ("BORNTIMESTAMP", str(message.born_timestamp)),
        ("BORNHOST", str(message.born_host)),
        ("STORETIMESTAMP", str(message.store_timestamp)),
        ("STOREHOST", str(message.store_host)),
        ("RECONSUMETIMES", str(message.reconsume_times)),
        ("PREPAREDTRANSACTIONOFFSET", str(message.prepared_transaction_offset)),
        ("body length", str(len(message.body))),
        ("BODY", message.body.decode()),
        ("topic length", str(len(message.topic))),
        ("TOPIC", message.topic),
        ("properties length", str(len(message.properties_bytes))),
        ("PROPERTIES", pairs),
    ]


def blank_rows(data: bytes) -> list[tuple[str, str]]:
    size, magic = commit_log.read_size_and_magic(data, 0)
    assert magic == commit_log.BLANK_MAGIC
    assert data.startswith(commit_log.encode_blank(len(data)))
    rest = data[commit_log.BLANK_BYTES :]
    return [
        ("SIZE", str(size)),
        ("MAGIC", str(magic)),
        ("left as it was", "zeros" if not any(rest) else "not zeros"),
    ]


def index_rows(example: Example, data: bytes, hash_slots: int) -> list[tuple[str, str]]:
    names: tuple[str, ...]
    values: tuple[int, ...]
    if example.start == 0:
        names = ("begin timestamp", "end timestamp", "begin physical offset", "end physical offset")
        names += ("used slots", "index count")
        values = index_file.decode_header(data)
    elif example.start < index_file.item_position(hash_slots, 0):
        names, values = ("newest item",), struct.unpack(">i", data)
    else:
        names = ("key hash", "physical offset", "time", "previous")
        values = index_file.decode_item(data)
    return list(zip(names, map(str, values), strict=True))


def property_rows(data: bytes) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in properties.decode_properties(data.decode()).items():
        rows += [("separator", "2")] if rows else []
        rows += [("name", name), ("separator", "1"), ("value", value)]
    return rows


def test_every_format_page_has_its_worked_examples() -> None:
    found = {page.name: len(examples(page)) for page in PAGES}
    assert {name: found[name] for name in MINIMUM_EXAMPLES} == MINIMUM_EXAMPLES
    dumps = sum(page.read_text(encoding="utf-8").count("```text") for page in PAGES)
    assert dumps == len(EXAMPLES), "a dump that is not followed by its table is not tested"


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_the_dump_is_what_the_broker_wrote(example: Example, golden: Golden) -> None:
    assert example.dump == hex_dump(data_of(example, golden), example.start)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_the_table_covers_every_byte_of_the_dump(example: Example, golden: Golden) -> None:
    data = data_of(example, golden)
    stops = [row.at for row in example.rows[1:]] + [example.length]
    assert example.rows[0].at == 0
    for row, stop in zip(example.rows, stops, strict=True):
        assert shows(row.bytes, data[row.at : stop]), f"{row}: {data[row.at : stop].hex(' ')}"


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_the_table_says_what_reput_format_decodes(example: Example, golden: Golden) -> None:
    expected = decoded(example, data_of(example, golden), golden(example.store).hash_slots)
    assert [(row.field, row.value) for row in example.rows] == expected


def test_the_chain_of_index_file_is_walked_as_told(golden: Golden) -> None:
    header, slot, *items = [e for e in EXAMPLES if e.page == "index-file.md"]
    store = golden(header.store)
    key_hash = index_file.key_hash(index_file.index_key("orders", "order-100377"))
    assert slot.start == index_file.slot_position(key_hash % store.hash_slots)
    number = int(slot.rows[0].value)
    for example in items:
        assert example.start == index_file.item_position(store.hash_slots, number)
        number = int(example.rows[-1].value)
    assert number == 0, "the chain ends with the last item shown"
    hits = [item.rows[1].value for item in items if item.rows[0].value == str(key_hash)]
    log = (store.path / "commitlog" / file_names.offset_file_name(0)).read_bytes()
    keys = [
        properties.index_keys(commit_log.decode(log, int(offset)).properties) for offset in hits
    ]
    assert len(keys) == 2
    assert all("order-100377" in some for some in keys)


def test_the_hashes_of_the_properties_page(golden: Golden) -> None:
    page = (FORMAT_PAGES / "properties-and-keys.md").read_text(encoding="utf-8")
    stated = re.findall(r"\| `(orders#\S+)` \| (\d+) \| (\d+) \|", page)
    slots = golden("orders").hash_slots
    assert len(stated) == 3
    for text, key_hash, slot in stated:
        assert int(key_hash) == index_file.key_hash(text)
        assert int(slot) == int(key_hash) % slots
    code = re.search(r"tags code of `(\w+)` is (\d+)", page)
    assert code
    assert int(code[2]) == properties.tags_code("orders", {"TAGS": code[1]}, 0, [])


def test_the_names_of_the_file_names_page(golden: Golden) -> None:
    page = (FORMAT_PAGES / "file-names.md").read_text(encoding="utf-8")
    named = re.findall(r"\| `(\w+)/store/([^`]+)` \| (.+) \|\n", page)
    assert len(named) == 3
    for store, file, meaning in named:
        path = golden(store).path / file
        assert path.is_file()
        if file.startswith("index/"):
            made = datetime.strptime(path.name, "%Y%m%d%H%M%S%f")
            assert (
                meaning == f"created on {made:%Y-%m-%d at %H:%M:%S}.{made.microsecond // 1000:03d}"
            )
            continue
        numbers = [int(text) for text in re.findall(r"`(\d+)`", meaning)]
        assert numbers[0] == file_names.parse_offset_file_name(path.name)
        assert numbers[1:] in ([], [numbers[0] // consume_queue.ENTRY_BYTES])


@pytest.mark.parametrize("page", sorted(CHECKOUT.glob("docs/**/*.md")), ids=lambda path: path.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_toy_file_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = next(page for page in PAGES if page.name == "index-file.md").read_text(encoding="utf-8")
    code, rest = page.split("## A toy file")[1].split("```python\n")[1].split("```\n", 1)
    shown = rest.split("```\n")[1]
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "index-file.md", "exec"), {})
    assert capsys.readouterr().out == shown
    assert (tmp_path / "20261120232222031").stat().st_size == 460
