"""Untrusted JSON has at most so many bytes and values, whoever decodes it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from reput import Message, open_store
from reput.core.store.topics_file import topic_names
from reput.errors import FormatError, StoreError
from reput.format import untrusted_json
from reput.format.archive import decode_manifest
from reput.format.file_names import OWNER_FILE, RECOVERY_POINT_FILE
from reput.format.untrusted_json import check_json, parse_java_json, parse_json
from reput.io.archive import Archive
from reput.io.object_folder import ObjectFolder
from reput.wings.lakes.commit import State
from reput.wings.serve.broker.config_file import ConfigFile
from tests.small import SMALL

_MANY = b'{"topicConfigTable":{"a":[' + b"[]," * (untrusted_json.MOST_JSON_VALUES // 2) + b"{}]}}"
_DEEP = b'{"topicConfigTable":' + b"[" * (1 << 20)


def test_values_are_counted_before_they_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untrusted_json, "MOST_JSON_VALUES", 20)
    monkeypatch.setattr(untrusted_json, "MOST_JSON_BYTES", 200)
    check_json(json.dumps(list(range(19))).encode())
    for data in (json.dumps(list(range(30))).encode(), b"[" * 21, b'{"a":' * 21):
        with pytest.raises(ValueError, match="more than 20 values"):
            check_json(data)
    with pytest.raises(ValueError, match="more than 200 bytes"):
        check_json(b" " * 201)
    check_json(b"1" * 200)
    assert parse_json(json.dumps(list(range(19)))) == list(range(19))
    for text in (json.dumps(list(range(30))), "[" * 21):
        with pytest.raises(ValueError, match="more than 20 values"):
            parse_json(text)


def _state(data: bytes) -> object:
    return State.from_text(data.decode(), "place")


@pytest.mark.parametrize("decode", [parse_java_json, decode_manifest, _state])
@pytest.mark.parametrize(
    ("data", "reason"), [(_MANY, "more than 4,194,304 values"), (_DEEP, "nested|not the manifest")]
)
def test_each_decoder_refuses_too_much(
    decode: Callable[[bytes], object], data: bytes, reason: str
) -> None:
    with pytest.raises((ValueError, StoreError), match=reason) as refused:
        decode(data)
    assert "\n" not in str(refused.value)


def test_files_with_too_much_are_refused_or_count_as_missing(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_bytes(_MANY)
    (tmp_path / "archive.json").write_bytes(_MANY)
    assert topic_names(str(tmp_path)) == frozenset()
    with pytest.raises(FormatError, match="more than 4,194,304 values"):
        ConfigFile(tmp_path, "topics.json", is_writable=False).load()
    with pytest.raises(StoreError, match="more than 4,194,304 values"):
        Archive.manifest_in(ObjectFolder(str(tmp_path), is_made=False))


@pytest.mark.parametrize("data", [_MANY, _DEEP], ids=["many", "deep"])
@pytest.mark.parametrize("name", [OWNER_FILE, RECOVERY_POINT_FILE])
def test_files_of_the_last_owner_with_too_much_count_as_missing(
    tmp_path: Path, name: str, data: bytes
) -> None:
    open_store(tmp_path, mode="rw", config=SMALL).close()
    (tmp_path / name).write_bytes(data)
    with open_store(tmp_path, mode="rw", config=SMALL) as store:
        store.put(Message("T", b"body"))
