"""Every public function refuses arguments of a wrong type in one line that says what to pass."""

import inspect
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import reput
import reput.spark
from reput.base.arguments import _check_of, checked, milliseconds
from reput.engine.messages.topic_messages import messages_of_topic
from reput.engine.tables.arrow import to_arrow
from reput.engine.writer.put.message import Message
from reput.engine.writer.retention import RetentionLimits
from reput.engine.writer.shared_store import SharedStore
from reput.engine.writer.writer_settings import WriterSettings
from reput.errors import UsageError
from reput.wings.console.volume import volume_of_topic
from tests.small import SMALL

# Parameters whose values have no plain type: callbacks, tables, objects that only reput passes.
_UNCHECKED = {
    "put_columns", "put_built", "put_run", "subscribe", "add_dispatcher", "search", "add_put", "coverage_of",
    "quick_query", "quick_records", "explain",
}  # fmt: skip
_VALID: dict[str, Any] = {
    "store": "no such store", "stores": "no such store", "path": "no such store", "archive": "no", "a": "no", "b": "no",
    "topic": "T", "key": "k", "message_id": "x", "queue_id": 0, "queue_offset": 0, "physical_offset": 0,
    "timestamp": 0, "max_num": 1, "begin": 0, "end": 0, "message": Message("T"), "messages": [],
    "before": 0, "log_end": 0, "max_bytes": 1, "destination": "no", "output": "no", "keys": [], "found": None,
    "record": "no",
    "tags": "t", "topics": ["T"], "spark": object.__new__(SparkSession),
}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A store with one message, opened in each way."""
    path = tmp_path_factory.mktemp("arguments") / "s"
    with reput.open_store(path, mode="rw", config=SMALL) as writable:
        writable.put(Message("orders", b"body", ["customer-65"]))
        writable.wait_dispatched()
        with reput.open_store(path) as reading:
            shared = SharedStore(path)
            yield {"reading": reading, "writable": writable, "shared": shared, "path": path}
            shared.close()


def _functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in reput.__all__:
        if inspect.isfunction(function := getattr(reput, name)):
            yield f"reput.{name}", function
    for name in reput.spark.__all__:
        yield f"reput.spark.{name}", getattr(reput.spark, name)
    yield "messages_of_topic", messages_of_topic
    yield "volume_of_topic", volume_of_topic


def _checkable(function: Callable[..., Any]) -> list[inspect.Parameter]:
    names = vars(inspect.getmodule(inspect.unwrap(function)))
    return [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and _check_of(parameter.annotation, names) is not None
    ]


def _refuses_each(function: Callable[..., Any]) -> int:
    """Check that each parameter of a function refuses a wrong value and is named. Returns the number of parameters."""
    parameters = _checkable(function)
    for wrong in parameters:
        given = {
            one.name: _VALID[one.name]
            for one in inspect.signature(function).parameters.values()
            if one.default is one.empty
            and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
        }
        with pytest.raises(UsageError, match=rf"^{wrong.name} must be ") as refused:
            function(**{**given, wrong.name: object()})
        assert refused.value.arguments == (wrong.name,)
        assert "\n" not in str(refused.value)
    return len(parameters)


@pytest.mark.parametrize(
    ("name", "function"), [*_functions()], ids=lambda value: getattr(value, "__name__", value)
)
def test_functions(name: str, function: Callable[..., Any]) -> None:
    assert _refuses_each(function) or name.rpartition(".")[2] in _UNCHECKED


@pytest.mark.parametrize("how", ["reading", "shared", "writable"])
def test_methods(store: dict[str, Any], how: str) -> None:
    opened, checked_ones = store[how], 0
    for name, method in inspect.getmembers(opened, inspect.ismethod):
        if name.startswith("_") or name in _UNCHECKED or not inspect.signature(method).parameters:
            continue
        if inspect.unwrap(method.__func__).__module__.startswith("reput.core.store"):
            continue  # inherited from a class that is not public
        if method.__self__ is not opened:
            continue
        assert _refuses_each(method), name
        checked_ones += 1
    assert checked_ones >= 15


def test_the_constructor(store: dict[str, Any]) -> None:
    every: list[dict[str, Any]] = [
        {"hash_slots": "3"}, {"index": 5}, {"config": {}}, {"storage_options": []}
    ]  # fmt: skip
    for wrong in every:
        with pytest.raises(UsageError, match=f"^{next(iter(wrong))} must be "):
            reput.open_store(store["path"], **wrong)


def test_what_was_answered_wrongly(store: dict[str, Any]) -> None:
    opened = store["reading"]
    assert len(opened.query("orders", "customer-65").messages) == 1
    for arguments, message in (
        (
            ("orders", b"customer-65"),
            "key must be a string, not b'customer-65'; pass 'customer-65'",
        ),
        ((b"orders", "customer-65"), "topic must be a string, not b'orders'; pass 'orders'"),
    ):
        with pytest.raises(UsageError) as refused:
            opened.query(*arguments)
        assert str(refused.value) == message
    for named, message in (
        ({"limit": "3"}, "limit must be an integer, not '3'; pass 3"),
        ({"limit": True}, "limit must be an integer, not True"),
        (
            {"begin": 1_700_000_000},
            "begin: 1700000000 looks like seconds since 1970; times are milliseconds: pass 1700000000000",
        ),
        (
            {"end": 1_700_000_000.5},
            "end must be milliseconds since 1970 (an integer), a datetime with a timezone, or a text such as "
            "'2h ago', not 1700000000.5; pass 1700000000500",
        ),
        (
            {"end": "yesterday"},
            "end: 'yesterday' is not a time: write 2026-10-14T08:35:06, milliseconds since 1970, or '2h ago'",
        ),
    ):
        with pytest.raises(UsageError) as refused:
            opened.query("orders", "customer-65", **named)
        assert str(refused.value) == message
    naive = datetime(2026, 1, 1)
    with pytest.raises(UsageError, match="begin: 2026-01-01 00:00:00 has no timezone"):
        opened.query("orders", "customer-65", begin=naive)


_WRONG_MESSAGES: list[tuple[dict[str, Any], str]] = [
    ({"topic": b"t"}, "topic must be a string, not b't'; pass 't'"),
    ({"body": "text"}, "body must be bytes, not 'text'"),
    ({"keys": 5}, "keys must be a collection of strings or a string, not 5"),
    ({"keys": ["a", b"b"]}, "keys must be a collection of strings or a string, not ['a', b'b']"),
    ({"tags": b"x"}, "tags must be a string, not b'x'; pass 'x'"),
    (
        {"properties": {"a": 1}},
        "properties must be a mapping of strings or a string or bytes, not {'a': 1}",
    ),
    ({"born_timestamp": "x"}, "born_timestamp must be an integer, not 'x'"),
    ({"flag": "a"}, "flag must be an integer, not 'a'"),
    ({"born_host": "h"}, "born_host must be a Host, not 'h'"),
    ({"queue_id": "1"}, "queue_id must be an integer, not '1'; pass 1"),
    ({"queue_id": 1.0}, "queue_id must be an integer, not 1.0"),
    ({"flag": "1"}, "flag must be an integer, not '1'; pass 1"),
    ({"sys_flag": None}, "sys_flag must be an integer, not None"),
    ({"born_timestamp": "5"}, "born_timestamp must be an integer, not '5'; pass 5"),
    (
        {"prepared_transaction_offset": 1.5},
        "prepared_transaction_offset must be an integer, not 1.5",
    ),
]


@pytest.mark.parametrize(("fields", "reason"), _WRONG_MESSAGES)
def test_fields_of_messages(store: dict[str, Any], fields: dict[str, Any], reason: str) -> None:
    opened, wrong = store["writable"], Message(**{"topic": "fields", **fields})
    right = Message("fields")
    puts: list[Callable[[], object]] = [
        lambda: opened.put(wrong), lambda: opened.put_many([wrong]), lambda: opened.put_batch((wrong,))
    ]  # fmt: skip
    for put in puts:
        with pytest.raises(UsageError) as refused:
            put()
        assert str(refused.value) == f"message 0: {reason}"
    with pytest.raises(UsageError, match=r"^message 1: "):
        opened.put_many([right, wrong])
    opened.put(right)
    with pytest.raises(UsageError, match=r"^messages: number 0 must be a Message, not 5$"):
        opened.put_many([5])


def test_settings() -> None:
    for kind, fields in (
        (reput.StoreConfig, {"hash_slots": "3"}),
        (reput.StoreConfig, {"enable_lmq": 1}),
        (RetentionLimits, {"file_reserved_hours": "x"}),
        (WriterSettings, {"flush": 5}),
        (WriterSettings, {"store_host": "127.0.0.1"}),
    ):
        with pytest.raises(UsageError, match=f"^{next(iter(fields))} must be "):
            kind(**fields)


def test_times_of_a_look_up(store: dict[str, Any]) -> None:
    row = {"topic": "orders", "key": "customer-65", "end": 1_800_000_000}
    with pytest.raises(UsageError, match="column 'end': 1800000000 looks like seconds"):
        reput.look_up(store["path"], [row], runner="serial")


def test_times_may_be_datetimes(store: dict[str, Any]) -> None:
    opened, path = store["reading"], store["path"]
    stored = opened.query("orders", "customer-65").messages[0].store_timestamp
    moment = datetime.fromtimestamp(stored // 1000, UTC) + timedelta(milliseconds=stored % 1000)
    local = moment.astimezone(timezone(timedelta(hours=-7)))
    later = local + timedelta(milliseconds=1)
    assert milliseconds(local) == stored
    for one in (opened, store["shared"], store["writable"]):
        assert len(one.query("orders", "customer-65", begin=local, end=moment).messages) == 1
        assert not one.query("orders", "customer-65", begin=later).messages
        queue = "orders", 0
        assert one.offset_by_time(*queue, local) == 0
        assert one.offset_by_time(*queue, later) == 1
        assert one.end_offset_by_time(*queue, local) == 1
    *_, last = opened.query_steps("orders", "customer-65", end=local)
    assert len(last.messages) == 1
    assert len(messages_of_topic(opened, "orders", begin=local, end=local).messages) == 1
    assert sum(volume_of_topic(opened, "orders", begin=local, end=later).messages) == 1
    assert to_arrow(path, ["topic"], begin=local, end=local).read_all().num_rows == 1
    assert to_arrow(path, ["topic"], topic="orders", begin=later).read_all().num_rows == 0
    assert store["writable"].expire(local, dry_run=True) == store["writable"].expire(
        stored, dry_run=True
    )


def test_integers_of_other_libraries_are_integers(store: dict[str, Any]) -> None:
    import numpy as np

    opened = store["reading"]
    assert len(opened.query("orders", "customer-65", limit=np.int64(1)).messages) == 1
    assert opened.get(np.int64(0)).topic == "orders"


def test_a_function_keeps_its_name_and_its_errors() -> None:
    @checked
    def function(path: "str | Path", *, names: "Iterator[str] | None" = None) -> None:
        """Do nothing."""
        raise KeyError(path)

    assert function.__name__ == "function"
    with pytest.raises(KeyError):
        function("x", names=None)
    with pytest.raises(UsageError, match=r"^path must be a string or a Path, not 5$"):
        function(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        function()  # type: ignore[call-arg]
