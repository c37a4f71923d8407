"""Users of a public signature can name every type in it."""

import dataclasses
import inspect
import subprocess
import sys
import typing
from collections.abc import Iterator

import pytest

import reput
import reput.spark
from reput import reports
from reput.format.host import Host

_ALL = {name: getattr(home, name) for home in (reput, reports) for name in home.__all__}
_CLASSES = sorted(name for name, found in _ALL.items() if inspect.isclass(found))
_OPERATIONS = [name for name in reput.__all__ if not inspect.isclass(_ALL[name])]
# Classes that users get from stores and reports. Unlike public names, they may change in any release.
_PARTS = {
    "BatchQueueInspection",
    "BodyShape",
    "Chain",
    "CheckpointInspection",
    "CommitLogInspection",
    "Condition",
    "ConsumeQueueEntry",
    "ConsumeQueueInspection",
    "Difference",
    "EntriesOfQueue",
    "GroupLag",
    "IndexHeader",
    "IndexInspection",
    "ItemRow",
    "Life",
    "MarkerInspection",
    "Plan",
    "ProvenFile",
    "QueueInspection",
    "QueueLag",
    "SlotRow",
    "StoreFigures",
    "StoreInspection",
    "CommitLogReader",
    "ConsumeQueueSetReader",
    "IndexFileSetReader",
    "Judge",
    "LocatedRecord",
    "Planner",
    "QueryRecords",
    "RecordForm",
    "RecordProgress",
    "KeyPredicate",
    "Unread",
}


def _types_in(annotation: object) -> Iterator[type]:
    """Return the classes of reput that an annotation names."""
    for part in typing.get_args(annotation):
        yield from _types_in(part)
    if inspect.isclass(annotation) and annotation.__module__.partition(".")[0] == "reput":
        yield annotation


def _hints(function: object) -> dict[str, object]:
    home = inspect.getmodule(function)
    assert home is not None
    names = {**_ALL, **vars(home)}
    return typing.get_type_hints(function, globalns=names)


def _signatures(owner: type) -> Iterator[tuple[str, dict[str, object]]]:
    for name, member in inspect.getmembers(owner):
        if name.startswith("_"):
            continue
        function = member.fget if isinstance(member, property) else member
        is_callable = inspect.isfunction(function) or inspect.ismethod(function)
        if is_callable and function.__module__.startswith("reput"):
            yield f"{owner.__name__}.{name}", _hints(function)
    if dataclasses.is_dataclass(owner) or hasattr(owner, "_fields"):
        yield owner.__name__, typing.get_type_hints(owner)


@pytest.mark.parametrize("name", _CLASSES)
def test_every_type_that_a_signature_names_is_exported(name: str) -> None:
    public = set(_ALL.values())
    seen = 0
    for where, hints in _signatures(_ALL[name]):
        for annotation in hints.values():
            for found in _types_in(annotation):
                seen += 1
                is_public = found in public or found.__module__ == "reput.errors"
                assert is_public or found.__name__ in _PARTS, f"{where}: {found.__name__}"
    if name in ("MessageStore", "WritableStore", "Coverage"):
        assert seen >= 2, "there are types to look at"


def test_a_message_has_the_names_of_rocketmqs_own() -> None:
    message = reput.MessageExt(
        topic="T", queue_id=1, queue_offset=2, physical_offset=0xD23D, size_bytes=100, flag=0,
        sys_flag=0, body_crc=0, born_timestamp=0, born_host=Host("10.0.0.1", 1),
        store_timestamp=0, store_host=Host("10.8.9.1", 10911), reconsume_times=0,
        prepared_transaction_offset=0, body=b"",
        properties_bytes=b"KEYS\x01a  b\x02TAGS\x01t\x02UNIQ_KEY\x01u",
    )  # fmt: skip
    assert (message.keys, message.tags, message.unique_key) == (["a", "b"], "t", "u")
    assert message.message_id == "0A08090100002A9F000000000000D23D"
    bare = dataclasses.replace(message, properties_bytes=b"")
    assert (bare.keys, bare.tags, bare.unique_key) == ([], None, None)


def test_the_number_of_columns_is_the_one_that_is_claimed() -> None:
    from pathlib import Path

    from reput.engine.messages.schema import COLUMNS

    root = Path(__file__).parents[1]
    for page in ("README.md", "docs/performance.md"):
        assert f"{len(COLUMNS)} columns" in (root / page).read_text(encoding="utf-8"), page


_OF_ARCHIVES = {
    "archive", "erase", "restore", "verify_archive", "verify_erasure", "with_archive",
}  # fmt: skip
_OF_ONE_FILE = {"ConsumeQueue", "IndexFile"}


def test_there_are_few_public_names() -> None:
    # With more names, an interactive shell's list of suggestions would not fit on a screen.
    assert len(set(reput.__all__) - _OF_ARCHIVES - _OF_ONE_FILE) <= 25
    assert set(reput.__all__) > _OF_ARCHIVES
    assert not set(reput.__all__) & set(reports.__all__)


_IMPORT_ALL = """
import pkgutil, sys
import reput
for module in pkgutil.walk_packages(reput.__path__, "reput."):
    if not module.name.endswith("__main__"):
        __import__(module.name)
print([name for name in sys.argv[1:] if not callable(getattr(reput, name))])
"""


def test_no_module_takes_the_name_of_an_operation() -> None:
    """An imported module becomes an attribute of its package, and would hide a function."""
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT_ALL, *_OPERATIONS],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


def test_a_name_that_moved_is_found_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match=r"reput\.Finding has moved: use reput\.reports"):
        assert reput.Finding is reports.Finding
    with pytest.raises(AttributeError):
        reput.NoSuchName  # noqa: B018
