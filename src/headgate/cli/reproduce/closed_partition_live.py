"""`headgate reproduce closed-partition --live`: MPI jobs on a test bed of shaped links."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.base.errors import Problem, WorldError
from headgate.cli.reproduce.flow_live import need_network

if TYPE_CHECKING:
    from headgate.experiments.bed import Bed
    from headgate.experiments.closed_partition.live import Case, MeasuredCase

_LAUNCH_S = 5.0  # until the processes of a job exchange data
_TIMEOUT_S = 120.0
_NETWORK = "10.77.0.0/16"
_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# All messages by TCP; the algorithms whose messages are those of the simulated patterns; idle
# processes yield, as all of them share few cores.
_OPTIONS = {
    "pml": "ob1",
    "btl": "tcp,self",
    "btl_tcp_if_include": _NETWORK,
    "oob_tcp_if_include": _NETWORK,
    "mpi_yield_when_idle": "1",
    "coll_tuned_use_dynamic_rules": "1",
    "coll_tuned_allreduce_algorithm": "4",  # ring
    "coll_tuned_alltoall_algorithm": "1",  # all messages together
}


def need_mpi(python: Path | None) -> tuple[str, str]:
    """Return mpirun and a Python with mpi4py; raise WorldError without root, network or these."""
    need_network()
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        hint = "install Open MPI, and add its programs to PATH"
        raise WorldError([Problem(path="--live", problem="needs mpirun", hint=hint)], code="no_mpi")
    chosen = str(python or sys.executable)
    try:
        done = subprocess.run(
            [chosen, "-c", "import mpi4py"], capture_output=True, check=False, timeout=_TIMEOUT_S
        )
        found = done.returncode == 0
    except OSError:
        found = False
    if not found:
        hint = "install mpi4py in an environment, and name its Python with --mpi-python"
        text = f"{chosen} is no Python with mpi4py"
        raise WorldError([Problem(path="--mpi-python", problem=text, hint=hint)], code="no_mpi")
    return mpirun, chosen


def compare(
    mpirun: str,
    python: str,
    *,
    chosen: Sequence[Case] | None = None,
    seconds: float | None = None,
    show_progress: Callable[[str], None],
) -> tuple[MeasuredCase, ...]:
    """Run all cases and simulate them; everything is removed at the end, also after a failure."""
    from headgate.experiments.bed import Bed
    from headgate.experiments.closed_partition import live

    show_progress("building 8 network namespaces in 2 racks")
    with Bed(live.RACKS, ray=False) as bed:
        for rack in live.RACKS:
            bed.shape(rack, mbit_per_s=live.UPLINK_MBIT_PER_S)
        runner = _Runner(bed, mpirun, python, live.SECONDS if seconds is None else seconds)
        measured = {}
        for case in chosen or live.cases():
            measured[case] = runner.run(case)
            steps = ", ".join(f"{1e3 * s:.0f} ms" for s in measured[case].values())
            show_progress(f"{case.name}: {steps} a step")
    return live.pairs(measured)


class _Runner:
    """Runs MPI jobs in the namespaces of a test bed."""

    def __init__(self, bed: Bed, mpirun: str, python: str, seconds: float) -> None:
        self._bed, self._mpirun, self._python, self._seconds = bed, mpirun, python, seconds
        self._agent = bed.state / "agent"
        self._agent.write_text(self._agent_script())
        self._agent.chmod(0o700)

    def _enter(self, node: str) -> list[str]:
        """Return the command prefix of a node; MPI takes nodes of one host name for one machine."""
        named = ("unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', f"{node}-mpi")
        return [*self._bed.seats[node].enter, *named]

    def _agent_script(self) -> str:
        """Return the program that starts MPI's daemon on another node: ADDRESS COMMAND..."""
        lines = ["#!/bin/sh", 'at="$1"; shift', 'case "$at" in']
        for node in self._bed.nodes:
            enter = " ".join(f"'{word}'" for word in self._enter(node.id))
            lines.append(f'  {self._bed.seats[node.id].address}) exec {enter} sh -c "$*" ;;')
        return "\n".join([*lines, "esac", "exit 1", ""])

    def run(self, case: Case) -> dict[str, float]:
        """Run the jobs of a case at the same time; return the seconds of a step of each."""
        from headgate.experiments.closed_partition import live

        nodes = live.placed(case.method)
        start_at = time.time() + _LAUNCH_S
        size_bytes = live.STEP_BYTES[case.pattern]
        program = [str(case.pattern), str(size_bytes), str(start_at), str(self._seconds)]
        children = {job: self._start(nodes[job], program) for job in case.jobs}
        try:
            return {job: _step_s(case, child) for job, child in children.items()}
        finally:
            for child in children.values():
                child.kill()
                child.wait()

    def _start(self, nodes: Sequence[int], program: Sequence[str]) -> subprocess.Popen[str]:
        from headgate.experiments.closed_partition import mpi_steps

        names = [self._bed.nodes[number].id for number in nodes]
        hosts = ",".join(f"{self._bed.seats[name].address}:1" for name in names)
        options = {**_OPTIONS, "plm_rsh_agent": str(self._agent)}
        mca = [word for key, value in options.items() for word in ("--mca", key, value)]
        return subprocess.Popen(
            [
                *self._enter(names[0]),
                *(self._mpirun, *mca, "--bind-to", "none", "--host", hosts),
                *(self._python, mpi_steps.__file__, *program),
            ],
            env={**os.environ, **_ROOT},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


def _step_s(case: Case, child: subprocess.Popen[str]) -> float:
    """Return the seconds of a step that a job prints at its end."""
    try:
        out, err = child.communicate(timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise WorldError(f"{case.name}: mpirun has not ended after {_TIMEOUT_S:g} s") from None
    if child.returncode or not out.strip():
        raise WorldError(f"{case.name}: mpirun ended with {child.returncode}:\n{err[-2000:]}")
    found = json.loads(out.strip().splitlines()[-1])
    return float(found["seconds"]) / int(found["steps"])
