"""The quota of a container, as Linux states it in the files of control groups, limits the processors that are used."""

from pathlib import Path

import pytest

from reput.base import machine
from reput.base.machine import usable_cpus


def _states(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


V1 = "12:memory:/m\n4:cpu,cpuacct:/pods/a\n1:name=systemd:/\n"
TIME = "fs/cpu,cpuacct/"


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("groups", "files", "quotas"),
    [
        ("0::/\n", {"fs/cpu.max": "150000 100000\n"}, [(150000, 100000)]),
        ("0::/\n", {"fs/cpu.max": "max 100000\n"}, []),
        ("0::/a/b\n", {"fs/a/cpu.max": "5 1\n", "fs/a/b/cpu.max": "9 2\n"}, [(9, 2), (5, 1)]),
        # The path is the one outside of the container, which sees its own group at the root.
        ("0::/kubepods/pod1/c2\n", {"fs/cpu.max": "400000 100000\n"}, [(400000, 100000)]),
        (V1, {TIME + "pods/a/cpu.cfs_quota_us": "-1", TIME + "pods/a/cpu.cfs_period_us": "9"}, []),
        (V1, {TIME + "cpu.cfs_quota_us": "30", TIME + "cpu.cfs_period_us": "10"}, [(30, 10)]),
        ("0::/\n", {"fs/cpu.max": "0 0\n"}, []),
        ("0::/\n", {"fs/cpu.max": "250000\n"}, [(250000, 100000)]),
        ("nonsense\n0::/\n", {"fs/cpu.max": "2 1"}, [(2, 1)]),
        # The folder has the controllers' names in another order.
        ("3:cpuacct,cpu:/\n", {"fs/cpu/cpu.cfs_quota_us": "7", "fs/cpu/cpu.cfs_period_us": "2"}, [(7, 2)]),
        ("0::/\n", {"fs/cpu.max": "nonsense"}, []),
        ("nonsense\n", {"fs/cpu.max": "1 1"}, []),
        ("0::/../..\n", {"cpu.max": "1 1"}, []),
    ],
)  # fmt: skip
def test_the_quotas_of_a_process_are_those_of_its_groups(
    tmp_path: Path, groups: str, files: dict[str, str], quotas: list[tuple[int, int]]
) -> None:
    _states(tmp_path, {"groups": groups, **files})
    assert list(machine._quotas(f"{tmp_path}/groups", f"{tmp_path}/fs")) == quotas


def test_a_system_without_control_groups_has_no_quota(tmp_path: Path) -> None:
    assert list(machine._quotas(f"{tmp_path}/groups", f"{tmp_path}/fs")) == []


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("quota", "count"),
    [(None, 8), ((150, 100), 2), ((100, 100), 1), ((1, 100), 1), ((9900, 100), 8)],
)
def test_a_part_of_a_processor_counts_as_a_whole_one(
    monkeypatch: pytest.MonkeyPatch, quota: tuple[int, int] | None, count: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(machine, "_quotas", lambda *_: [] if quota is None else [quota])
    assert usable_cpus() == count
