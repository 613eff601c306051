"""Control groups of both versions, as files; and real ones where this system has them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.live.cpu_groups import CpuGroup, available

_ENDED = 2**22 + 7  # more than any process id
_SPINS = "import time\nend = time.process_time() + 0.1\nwhile time.process_time() < end: pass"


def test_limit_and_use_in_version_2(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    group = CpuGroup("n0", root=tmp_path)
    (directory,) = tmp_path.glob("hgcpu*-n0")
    (directory / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 2000000\n")
    group.limit(0.4)
    assert (directory / "cpu.max").read_text() == "40000 100000"
    group.limit(None)
    assert (directory / "cpu.max").read_text() == "max 100000"
    assert group.used_s() == 2.5


def test_limit_and_use_in_version_1(tmp_path: Path) -> None:
    for controller in ("cpu", "cpuacct"):
        (tmp_path / controller).mkdir()
    group = CpuGroup("n0", root=tmp_path)
    (limits,) = tmp_path.glob("cpu/hgcpu*-n0")
    (usage,) = tmp_path.glob("cpuacct/hgcpu*-n0")
    (usage / "cpuacct.usage").write_text("2500000000\n")
    group.limit(0.4)
    assert (limits / "cpu.cfs_quota_us").read_text() == "40000"
    group.limit(None)
    assert (limits / "cpu.cfs_quota_us").read_text() == "-1"
    assert group.used_s() == 2.5


def test_groups_of_a_process_that_died_are_removed_and_those_of_others_kept(tmp_path: Path) -> None:
    for name in (f"hgcpu{_ENDED}-n0", f"hgcpu{os.getpid()}-n0"):
        (tmp_path / "cpu" / name).mkdir(parents=True)
    assert not available(root=tmp_path), "there is no cpuacct"
    assert [path.name for path in (tmp_path / "cpu").iterdir()] == [f"hgcpu{os.getpid()}-n0"]


@pytest.mark.root
@pytest.mark.skipif(not available(), reason="needs root and control groups")
def test_group_counts_the_cpu_time_of_its_processes_and_their_children() -> None:
    group = CpuGroup("count")
    try:
        shell = subprocess.Popen(["sh", "-c", 'read _; "$0" -c "$1"', sys.executable, _SPINS],
            stdin=subprocess.PIPE)  # fmt: skip
        group.add([shell.pid, _ENDED])
        shell.communicate(b"\n", timeout=60)
        assert group.used_s() >= 0.1
    finally:
        group.remove()
    assert list(Path("/sys/fs/cgroup").glob(f"**/hgcpu{os.getpid()}-count")) == []
