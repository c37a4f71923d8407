"""StoreConfig: a broker's settings; each invalid one is refused with one line."""

import sys
from pathlib import Path

import pytest

from reput.base.config import StoreConfig, read_properties
from reput.errors import StoreAccessError, StoreNotFoundError, UsageError
from tests.oracle.records import DELAY_LEVELS_S


def read(tmp_path: Path, text: str) -> dict[str, str]:
    path = tmp_path / "broker.conf"
    path.write_bytes(text.encode("latin-1"))
    return read_properties(path)


def test_defaults_are_the_brokers() -> None:
    config = StoreConfig()
    assert config.commit_log_file_bytes == 1073741824
    assert config.queue_file_bytes == 6_000_000
    assert config.index_file_bytes == 420_000_040
    assert config.max_query_messages == 64
    assert config.delay_table_ms() == [1000 * seconds for seconds in DELAY_LEVELS_S]
    assert not config.enable_multi_dispatch
    assert not config.enable_lmq


def test_a_broker_config_is_read(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(
        "# sizes\nbrokerName = broker-a\nmappedFileSizeCommitLog=65536\n"
        "mappedFileSizeConsumeQueue=6001\nmaxHashSlotNum=100\nmaxIndexNum=400\n"
        "messageDelayLevel=2s 1d\nenableLmq=TRUE\nenableMultiDispatch=true\nmaxMsgsNumBatch=7\n"
    )
    assert StoreConfig.from_broker_config(path) == StoreConfig(
        commit_log_file_bytes=65536,
        queue_entries=301,  # 6,001 bytes are rounded up to whole entries
        hash_slots=100,
        index_items=400,
        delay_levels="2s 1d",
        enable_lmq=True,
        enable_multi_dispatch=True,
        max_query_messages=7,
    )


@pytest.mark.parametrize("text", ["yes", "1", "true ", "", "tru"])
def test_only_true_is_true(text: str) -> None:
    assert not StoreConfig.from_broker_settings({"enableLmq": text}).enable_lmq


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("a=1\nb:2\nc 3\n  d\t=\t4\n", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("# a=1\n  ! b=2\n\n \t\nc=3", {"c": "3"}),
        ("# a comment does not go on \\\na=1", {"a": "1"}),
        ("a=1 \\\n   2 \\\n\t3", {"a": "1 2 3"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a=x=y:z", {"a": "x=y:z"}),
        ("a b=c", {"a": "b=c"}),
        (r"a\ b\=c=d", {"a b=c": "d"}),
        (r"a=\u0041\tB\q\\", {"a": "A\tBq\\"}),
        ("a=1 ", {"a": "1 "}),
        ("a\n=b", {"a": "", "": "b"}),
        ("é=ü", {"é": "ü"}),
        ("", {}),
    ],
)
def test_properties_files_are_read_as_java_reads_them(
    tmp_path: Path, text: str, settings: dict[str, str]
) -> None:
    assert read(tmp_path, text) == settings


@pytest.mark.parametrize("text", ["", "x", "1_0", " 1", "1 ", "1.0", "2147483648", "-2147483649"])
def test_a_number_that_no_broker_takes_is_refused_with_its_name(text: str) -> None:
    with pytest.raises(UsageError, match=r"^conf: maxIndexNum must be an integer of 32 bits, not "):
        StoreConfig.from_broker_settings({"maxIndexNum": text}, "conf")


@pytest.mark.parametrize(
    ("settings", "argument"),
    [
        ({"hash_slots": 0}, "hash_slots"),
        ({"index_items": 1}, "index_items"),
        ({"queue_entries": 0}, "queue_entries"),
        ({"queue_entries": 2**31 // 20 + 1}, "queue_entries"),
        ({"index_items": 2**31 // 20}, "index_items"),
        ({"hash_slots": 2**29}, "hash_slots"),
    ],
)
def test_sizes_that_no_file_can_have_name_their_argument(
    settings: dict[str, int], argument: str
) -> None:
    with pytest.raises(UsageError) as refused:
        StoreConfig(**settings)  # type: ignore[arg-type]
    assert argument in str(refused.value)
    assert argument in refused.value.arguments
    assert "\n" not in str(refused.value)


def test_a_consume_queue_of_no_bytes_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        StoreConfig.from_broker_settings({"mappedFileSizeConsumeQueue": "-19"})


@pytest.mark.parametrize(
    ("levels", "table"),
    [("1s", [1000]), ("1d 1s ", [86_400_000, 1000]), ("-1s 0h +2m", [-1000, 0, 120_000])],
)
def test_delay_levels(levels: str, table: list[int]) -> None:
    assert StoreConfig(delay_levels=levels).delay_table_ms() == table


@pytest.mark.parametrize(
    "levels", ["", " ", "1", "s", "1x", "1s  2s", "1_0s", "٣s", "1S", "9999999999999999999d", "-"]
)
def test_delay_levels_that_no_broker_starts_with_are_refused(levels: str) -> None:
    with pytest.raises(UsageError, match=r"^messageDelayLevel: "):
        StoreConfig(delay_levels=levels)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError, match="no such file"):
        StoreConfig.from_broker_config(tmp_path / "none.conf")


@pytest.mark.skipif(sys.platform == "win32", reason="a folder opens elsewhere")
def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreAccessError, match="cannot be read"):
        StoreConfig.from_broker_config(tmp_path)


def test_any_bytes_are_some_settings(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(bytes(range(256)) * 3)
    assert StoreConfig.from_broker_config(path) == StoreConfig()
