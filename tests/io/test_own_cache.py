"""Large files that the user's cache folder keeps for other programs."""

import errno
import os
import stat
from pathlib import Path

import pytest

from reput.errors import StoreAccessError
from reput.io.user_cache import OwnCache


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OwnCache:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return OwnCache("large")


def keep(cache: OwnCache, data: bytes = b"as it was kept") -> Path:
    with cache.keeping("file") as path:
        path.write_bytes(data)
    return cache.folder / "file"


def test_a_file_is_kept_whole_and_replaced_at_once(cache: OwnCache) -> None:
    assert cache.kept("file") is None
    for data in (b"first", b"second"):
        assert keep(cache, data) == cache.kept("file")
        assert (cache.folder / "file").read_bytes() == data
    assert {path.name for path in cache.folder.iterdir()} == {"file", "file.identity"}
    assert stat.S_IMODE(cache.folder.stat().st_mode) == 0o700


def test_what_fails_while_it_is_written_leaves_the_file_before(cache: OwnCache) -> None:
    path = keep(cache)
    with pytest.raises(UnicodeError), cache.keeping("file") as attempt:
        attempt.write_text("half, then \N{SNOWMAN}", "ascii")
    assert cache.kept("file") == path
    assert path.read_bytes() == b"as it was kept"
    assert len(list(cache.folder.iterdir())) == 2


def test_a_file_that_cannot_get_its_name_leaves_nothing(
    cache: OwnCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*names: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        with pytest.raises(StoreAccessError, match="Input/output error"):
            cache.write("file", b"data")
    assert list(cache.folder.iterdir()) == []


def test_a_program_that_writes_nothing_is_an_error(cache: OwnCache) -> None:
    with pytest.raises(StoreAccessError), cache.keeping("file"):
        pass
    assert cache.kept("file") is None


@pytest.mark.parametrize("harm", ["cut short", "written over", "a link", "others may write"])
def test_a_file_that_is_not_as_it_was_kept_is_none(cache: OwnCache, harm: str) -> None:
    path = keep(cache)
    if harm == "cut short":
        os.truncate(path, 3)
    elif harm == "written over":
        os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    elif harm == "a link":
        path.rename(path.with_name("elsewhere"))
        path.symlink_to("elsewhere")
    else:
        path.chmod(0o664)
    assert cache.kept("file") is None


def test_a_folder_in_which_others_may_write_keeps_nothing(cache: OwnCache) -> None:
    keep(cache)
    cache.folder.chmod(0o770)
    assert cache.kept("file") is None
    with pytest.raises(StoreAccessError, match="other users may write there"):
        keep(cache)


def test_a_full_folder_loses_its_oldest_files_until_a_quarter_is_free(cache: OwnCache) -> None:
    # A last byte of 0 lets `write` check the size of the folder. A checksum of 8 digits precedes the data.
    content, size = bytes(92), 100
    for number in range(8):
        cache.write(str(number), content)
        os.utime(cache.folder / str(number), ns=(number, number))
    cache.write("8", content, most_bytes=9 * size)
    assert sorted(path.name for path in cache.folder.iterdir()) == list("012345678")
    cache.write("9", content, most_bytes=9 * size)
    assert sorted(path.name for path in cache.folder.iterdir()) == list("456789")
    assert cache.read("9", 100) == content
    cache.write("a", content, most_bytes=4 * size)
    assert sorted(path.name for path in cache.folder.iterdir()) == list("89a")
