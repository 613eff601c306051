"""A real `mpirun` in jobs with `launch: first`, on nodes with networks of their own.

It needs Open MPI with its compiler. HEADGATE_TEST_MPI names the directory of its programs, where
these are not on the PATH.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from tests.live.bed import HAS_NETWORK, Bed
from tests.live.system import System, controlled

from headgate.live.base.config import ControllerConfig
from headgate.live.cluster.ray_nodes import Seat

PROGRAMS = os.environ.get("HEADGATE_TEST_MPI", os.environ["PATH"])
MPIRUN, MPICC = (shutil.which(name, path=PROGRAMS) for name in ("mpirun", "mpicc"))
pytestmark = [
    pytest.mark.live,
    pytest.mark.root,
    pytest.mark.skipif(
        not HAS_NETWORK, reason="needs root and iproute2: MPI sees one loopback node"
    ),
    pytest.mark.skipif(not (MPIRUN and MPICC), reason="needs Open MPI: mpirun and mpicc"),
]
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class NamedBed(Bed):
    """Nodes with host names of their own: MPI takes nodes of one name for one machine."""

    def _plug_in(self, name: str, bridge: str, address: str) -> Seat:
        seat = super()._plug_in(name, bridge, address)
        named = ("unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', f"{name}-mpi")
        return replace(seat, enter=(*seat.enter, *named))


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with NamedBed({"r0": 2, "r1": 1}) as bed:
        yield bed


@pytest.fixture(scope="module")
def headgate(bed: Bed) -> Iterator[System]:
    config = ControllerConfig(
        spares=0,
        policy="fifo",
        ray_address=bed.cluster.address,
        token=bed.cluster.token,
        probe_period_s=0,
    )
    with controlled(bed, config) as headgate:
        yield headgate


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("mpi") / "mpi_sum"
    source = Path(__file__).with_name("mpi_sum.c")
    subprocess.run([str(MPICC), "-o", str(built), str(source)], check=True)
    return built


def job(run: str, *, nodes: int) -> str:
    return json.dumps(
        {
            "name": "mpi",
            "num_nodes": nodes,
            "launch": "first",
            "tasks": {"run": run, "resources": {"gpus": 2}, "retries": 0},
            "envs": ROOT,
        }
    )


def processes(program: Path) -> list[psutil.Process]:
    """Return the running processes of the program."""
    found = []
    for process in psutil.process_iter():
        # not `process.exe()`, which remains what it was before a process has executed the program
        with suppress(OSError):
            if Path(f"/proc/{process.pid}/exe").readlink() == program:
                found.append(process)
    return found


def running(
    headgate: System, name: str, program: Path, count: int, but: Set[int] = frozenset()
) -> set[int]:
    """Wait until so many processes of the program run, besides some; return their ids."""

    def found() -> set[int]:
        pids = {process.pid for process in processes(program)} - but
        return pids if len(pids) == count else set()

    try:
        pids: set[int] = headgate.until(found, f"{count} processes of MPI run")
    except AssertionError as error:
        log = headgate.client.log(name, 0, attempt=None, offset=0)["text"]
        raise AssertionError(f"{error}\n{log}") from error
    return pids


def sums(ranks: int) -> list[str]:
    total = ranks * (ranks - 1) // 2
    return [f"{rank} of {ranks} on node {rank // 2} with 0,1: {total}" for rank in range(ranks)]


def test_mpirun_starts_a_process_per_gpu_on_all_nodes(headgate: System, program: Path) -> None:
    name = headgate.submit(job(f"{MPIRUN} {program} > {{output}}", nodes=3))
    headgate.ends(name)
    assert sorted(headgate.result(name, 0).decode().splitlines()) == sums(6)
    assert headgate.result(name, 1) == b""
    assert processes(program) == []


def test_cancelled_mpirun_leaves_no_process_on_any_node(
    headgate: System, program: Path, tmp_path: Path
) -> None:
    name = headgate.submit(job(f"{MPIRUN} {program} {tmp_path}/never", nodes=3))
    running(headgate, name, program, 6)
    headgate.client.cancel(name)
    headgate.ends(name, "cancelled")
    assert processes(program) == []


def test_mpirun_starts_again_on_other_nodes_when_one_is_lost(
    headgate: System, bed: Bed, program: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    name = headgate.submit(job(f"{MPIRUN} {program} {gate} > {{output}}", nodes=2))
    before = running(headgate, name, program, 4)
    lost = headgate.client.tasks(name)[1]["node"]
    bed.crash(lost)
    running(headgate, name, program, 4, but=before)
    gate.touch()
    headgate.ends(name)
    assert sorted(headgate.result(name, 0).decode().splitlines()) == sums(4)
    tasks = headgate.client.tasks(name)
    assert [(task["attempts"], task["failures"]) for task in tasks] == [(2, 0), (2, 0)]
    assert sorted(task["node"] for task in tasks) == sorted({"n0", "n1", "n2"} - {lost})
    assert processes(program) == []
