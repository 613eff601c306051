"""Control groups of both versions, as files; and real ones where this system has them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from headgate.live.base import control_groups
from headgate.live.base.control_groups import NODE_KINDS, ControlGroup, identity, sweep

FAMILY = f"headgate-test{os.getpid()}"
_ENDED = 2**22 + 7  # more than any process id
_SPINS = "import time\nend = time.process_time() + 0.1\nwhile time.process_time() < end: pass"
_STORM = """
import os, sys, time
end = time.monotonic() + float(sys.argv[1])
for _ in range(int(sys.argv[2])):
    if not os.fork():
        while time.monotonic() < end:
            try:
                if os.fork() and os.fork():
                    os._exit(0)
                os.setsid()
            except OSError:
                pass
        os._exit(0)
time.sleep(600)
"""


def _available() -> bool:
    try:
        ControlGroup.make(FAMILY, "try").remove()
    except OSError:
        return False
    return True


needs_groups = pytest.mark.skipif(not _available(), reason="needs root and control groups")


@pytest.fixture
def version_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Stand in for the files of version 1, with this process in the group `/user/s1`."""
    for kind in ("pids", "memory", "cpu,cpuacct"):
        (tmp_path / kind / "user" / "s1").mkdir(parents=True)
    for kind in ("cpu", "cpuacct"):
        (tmp_path / kind).symlink_to("cpu,cpuacct")
    own = tmp_path / "own"
    own.write_text("3:cpu,cpuacct:/user/s1\n2:pids:/user/s1\n1:memory:/absent\n0::/\n")
    monkeypatch.setattr(control_groups, "_OWN", str(own))
    return str(tmp_path)


@pytest.fixture
def version_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Stand in for the files of version 2, with this process in the group `/user/s1`."""
    (tmp_path / "user" / "s1").mkdir(parents=True)
    (tmp_path / "cgroup.controllers").write_text("cpu io memory pids\n")
    own = tmp_path / "own"
    own.write_text("0::/user/s1\n")
    monkeypatch.setattr(control_groups, "_OWN", str(own))
    return str(tmp_path)


def _files(directory: str) -> dict[str, str]:
    return {path.name: path.read_text() for path in Path(directory).iterdir() if path.is_file()}


def test_group_of_version_1_is_below_that_of_its_maker(version_1: str) -> None:
    group = ControlGroup.make("family", "j/1.0.1", root=version_1)
    unique = Path(group.places["pids"]).name
    assert unique.startswith(f"j%2F1.0.1-{os.getpid()}.")
    assert group.places == {
        "pids": f"{version_1}/pids/user/s1/family/{unique}",
        "memory": f"{version_1}/memory/family/{unique}",  # as in a container
        "cpu": f"{version_1}/cpu,cpuacct/user/s1/family/{unique}",
    }
    assert group.entries() == [f"{place}/tasks" for place in group.places.values()]
    group.remove()
    assert not list(Path(version_1).glob("**/family"))


def test_limits_of_version_1(version_1: str) -> None:
    group = ControlGroup.make("family", "run", root=version_1)
    group.limit(processes=200, memory_bytes=1 << 30, cpus_milli=2500)
    assert _files(group.places["pids"]) == {"pids.max": "200"}
    assert _files(group.places["memory"]) == {"memory.limit_in_bytes": str(1 << 30)}
    assert _files(group.places["cpu"]) == {"cpu.shares": "2560"}
    Path(group.places["memory"], "memory.memsw.limit_in_bytes").touch()
    group.limit(memory_bytes=1 << 20, cpus_milli=1)
    assert set(_files(group.places["memory"]).values()) == {str(1 << 20)}, "swap counts, too"
    assert _files(group.places["cpu"]) == {"cpu.shares": "2"}, "the least that Linux takes"


def test_memory_of_version_1(version_1: str) -> None:
    group = ControlGroup.make("family", "run", root=version_1)
    assert group.memory() == (0, 0), "not known"
    place = Path(group.places["memory"])
    (place / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    (place / "memory.max_usage_in_bytes").write_text("1048576\n")
    assert group.memory() == (3, 1048576)


def test_group_of_version_2_is_beside_that_of_its_maker(version_2: str) -> None:
    group = ControlGroup.make("family", "run", root=version_2)
    (place,) = set(group.places.values())
    assert Path(place).parent == Path(version_2, "user", "family")
    for level in ("", "/user", "/user/family"):
        assert _files(version_2 + level)["cgroup.subtree_control"].startswith("+")
    assert group.entries() == [f"{place}/processes/cgroup.procs"]
    inner = Path(version_2, "own")
    inner.write_text(f"0::{place.removeprefix(version_2)}/processes\n")
    nested = ControlGroup.make("family", "inner", root=version_2)
    assert Path(nested.places["pids"]).parent == Path(place, "family"), "its limits hold there"


def test_limits_of_version_2(version_2: str) -> None:
    group = ControlGroup.make("family", "run", root=version_2)
    place = group.places["pids"]
    Path(place, "memory.swap.max").write_text("max")
    group.limit(processes=200, memory_bytes=1 << 30, cpus_milli=2500)
    assert _files(place) == {
        "pids.max": "200",
        "memory.max": str(1 << 30),
        "memory.swap.max": "0",
        "cpu.weight": "250",
    }
    group.limit(cpus_milli=1)
    assert _files(place)["cpu.weight"] == "1"


def test_memory_of_version_2(version_2: str) -> None:
    group = ControlGroup.make("family", "run", root=version_2)
    place = Path(group.places["memory"])
    (place / "memory.events").write_text("low 0\nmax 7\noom 2\noom_kill 1\noom_group_kill 0\n")
    (place / "memory.peak").write_text("1048576\n")
    assert group.memory() == (1, 1048576)


def test_version_2_kills_a_group_as_a_whole(version_2: str) -> None:
    group = ControlGroup.make("family", "run", root=version_2)
    place = group.places["pids"]
    group.kill()
    assert _files(place) == {}, "it has no processes"
    Path(place, "processes", "cgroup.procs").write_text(f"{_ENDED}\n")
    group.kill()
    assert _files(place) == {"pids.max": "0"}, "a kernel before 5.14: it starts no process any more"
    Path(place, "cgroup.kill").write_text("0")
    group.kill()
    assert _files(place)["cgroup.kill"] == "1"


@pytest.mark.parametrize("version", ["version_1", "version_2"])
def test_limit_and_use_of_a_node(version: str, request: pytest.FixtureRequest) -> None:
    root: str = request.getfixturevalue(version)
    group = ControlGroup.make("family", "n0", kinds=NODE_KINDS, root=root)
    place = Path(group.places["cpu"])
    (place / "cpuacct.usage").write_text("2500000000\n")
    (place / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 2000000\n")
    assert group.used_s() == 2.5
    group.limit_cores(0.4)
    limited = {"cpu.max": "40000 100000"}
    if version == "version_1":
        limited = {"cpu.cfs_quota_us": "40000", "cpu.cfs_period_us": "100000"}
    assert _files(str(place)).items() >= limited.items()
    group.limit_cores(None)
    limited = {"cpu.max": "max 100000"}
    if version == "version_1":
        limited = {"cpu.cfs_quota_us": "-1"}
    assert _files(str(place)).items() >= limited.items()


def test_system_without_the_controller_has_no_groups(tmp_path: Path, version_1: str) -> None:
    (tmp_path / "pids" / "user" / "s1").rmdir()
    (tmp_path / "pids" / "user").rmdir()
    (tmp_path / "pids").rmdir()
    with pytest.raises(OSError, match="pids"):
        ControlGroup.make("family", "run", root=version_1)
    assert not list(tmp_path.glob("**/family"))


@pytest.mark.parametrize("version", ["version_1", "version_2"])
def test_groups_of_dead_owners_are_ended_and_those_of_others_kept(
    version: str, request: pytest.FixtureRequest
) -> None:
    root: str = request.getfixturevalue(version)
    mine = ControlGroup.make("family", "mine", root=root)
    other = ControlGroup.make("other", "left", root=root)
    for place in mine.places.values():
        for name in (f"left-{_ENDED}.17.0", f"reused-{os.getpid()}.1.0", "no-owner"):
            Path(place).with_name(name).mkdir(exist_ok=True)
    theirs = Path(other.places["pids"])
    theirs.rename(theirs.with_name(f"left-{_ENDED}.17.0"))
    sweep("family", root=root)
    left = {path.name for path in Path(root).glob("**/family/*") if path.is_dir()}
    assert left == {Path(mine.places["pids"]).name}
    assert list(Path(root).glob(f"**/other/left-{_ENDED}.17.0")), "of another family"


# ------------------------------------------------------------------------------- real groups


@pytest.fixture
def group() -> Iterator[ControlGroup]:
    """A group of at most 100 processes."""
    made = ControlGroup.make(FAMILY, "real")
    made.limit(processes=100)
    yield made
    made.end()
    assert list(Path("/sys/fs/cgroup").glob(f"**/{FAMILY}")) == []


def _start(group: ControlGroup, script: str, *words: str) -> subprocess.Popen[bytes]:
    """Start a Python script in a group."""
    shell = subprocess.Popen(
        ["sh", "-c", 'read _; exec "$0" -c "$@"', sys.executable, script, *words],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    group.add([shell.pid, _ENDED])
    assert shell.stdin is not None
    shell.stdin.write(b"\n")
    shell.stdin.close()
    return shell


@pytest.mark.root
@needs_groups
def test_storm_of_forks_is_ended_with_its_group(group: ControlGroup) -> None:
    storm = _start(group, _STORM, "30", "60", FAMILY)
    while int(Path(group.places["pids"], "pids.current").read_text()) < 50:
        assert storm.poll() is None
        time.sleep(0.02)
    group.end()
    assert storm.wait(timeout=60) == -9
    assert not any(map(os.path.exists, group.places.values()))
    found = psutil.process_iter(["cmdline"])
    assert not [p for p in found if FAMILY in (p.info["cmdline"] or ())]


def _version_2() -> tuple[str, tuple[str, ...]]:
    """Return where version 2 is mounted, also beside version 1, and one of its controllers."""
    for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        enabled = Path(root, "cgroup.subtree_control")
        try:
            kinds = tuple(Path(root, "cgroup.controllers").read_text().split())[:1]
            before = enabled.read_text().split()
            ControlGroup.make(FAMILY, "try", kinds=kinds, root=root).remove()
        except (OSError, IndexError):
            continue
        if kinds[0] not in before:
            enabled.write_text(f"-{kinds[0]}")
        return root, kinds
    return "", ()


@pytest.mark.root
@pytest.mark.skipif(not _version_2()[0], reason="needs root and control groups of version 2")
def test_real_group_of_version_2_is_ended_as_a_whole() -> None:
    root, kinds = _version_2()
    enabled = Path(root, "cgroup.subtree_control")
    before = enabled.read_text().split()
    group = ControlGroup.make(FAMILY, "real", kinds=kinds, root=root)
    try:
        sleeps = _start(group, "import os, time\nos.fork()\nos.setsid()\ntime.sleep(600)")
        while len(list(group._processes())) < 2:
            assert sleeps.poll() is None
            time.sleep(0.02)
        assert f"/{FAMILY}/" in Path(f"/proc/{sleeps.pid}/cgroup").read_text()
    finally:
        group.end()
    assert sleeps.wait(timeout=60) == -9
    assert list(Path(root).glob(f"**/{FAMILY}")) == []
    if kinds[0] not in before:
        enabled.write_text(f"-{kinds[0]}")


@pytest.mark.root
@needs_groups
def test_group_counts_the_cpu_time_of_its_processes_and_their_children() -> None:
    group = ControlGroup.make(FAMILY, "count", kinds=NODE_KINDS)
    try:
        spins = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {_SPINS!r}])"
        assert _start(group, spins).wait(timeout=60) == 0
        assert group.used_s() >= 0.1
        group.limit_cores(0.5)
    finally:
        group.remove()
    assert list(Path("/sys/fs/cgroup").glob(f"**/{FAMILY}")) == []


def test_process_whose_name_is_no_text_has_an_identity() -> None:
    """Any user may give a process any name, and it may have the id of an owner that has ended."""
    code = (
        "open('/proc/self/comm', 'wb').write(b'\\xff) Z ('); print(flush=True); "
        "import time; time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = identity(process.pid)
        process.kill()
    assert found.startswith(f"{process.pid}.")
    assert identity(process.pid) == ""
