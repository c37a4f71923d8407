"""Logs that grow, and followers of them that are held against a rebuild."""

from pathlib import Path

from reput.config import StoreConfig
from reput.files.disk import Disk
from reput.store.follow import Follower
from reput.store.follow_state import STATE_FILE, begin
from tests.oracle.forge import Files
from tests.store.rebuilding import rebuild, tree


class GrowingLog:
    """A log of which a broker has written up to some offset; what is not written is zero."""

    def __init__(self, folder: Path, files: Files) -> None:
        self.path, self._files = folder, files
        self.end = files[0][0]
        (folder / "commitlog").mkdir(parents=True, exist_ok=True)

    @property
    def last(self) -> int:
        return self._files[-1][0] + len(self._files[-1][1])

    def write_to(self, end: int) -> None:
        self.end = end
        for start, data in self._files:
            path = self.path / "commitlog" / f"{start:020d}"
            if start <= end or start == self._files[0][0]:
                path.write_bytes(data[: max(end - start, 0)].ljust(len(data), b"\0"))
            else:
                path.unlink(missing_ok=True)


def open_follower(
    log: GrowingLog, output: Path, config: StoreConfig, disk: Disk | None = None
) -> Follower:
    return Follower(log.path, output, begin(log.path, output, config), disk)


def catch_up(follower: Follower) -> None:
    while follower.poll() or follower.has_more:
        pass


def assert_as_rebuilt(log: GrowingLog, output: Path, config: StoreConfig) -> None:
    """Every byte of every file, and every name."""
    fresh = output.with_name(f"rebuilt-{log.end}")
    rebuild(log.path, fresh, config)
    ours = {name: data for name, data in tree(output).items() if not name.startswith(STATE_FILE)}
    expected = tree(fresh)
    assert sorted(ours.keys() ^ expected.keys()) == []
    assert [name for name in ours if ours[name] != expected[name]] == []


def taken_up(log: GrowingLog, output: Path, config: StoreConfig) -> Follower:
    """A follower that went on from whatever lies in `output`, to the end of the log."""
    follower = open_follower(log, output, config)
    catch_up(follower)
    follower.close()
    assert_as_rebuilt(log, output, config)
    return follower
