"""`headgate reproduce closed-partition --live`, very short: two runs of a second each.

HEADGATE_TEST_MPI4PY names a Python that has mpi4py; Open MPI must be on the PATH.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.live.bed import HAS_NETWORK

from headgate.base.errors import WorldError
from headgate.cli.reproduce.closed_partition_live import compare, need_mpi
from headgate.experiments.closed_partition import live
from headgate.experiments.closed_partition.runs import CLOSED, SEQUENTIAL
from headgate.model import Pattern

PYTHON = os.environ.get("HEADGATE_TEST_MPI4PY", "")
pytestmark = [
    pytest.mark.live,
    pytest.mark.root,
    pytest.mark.skipif(not HAS_NETWORK, reason="needs root and iproute2"),
    pytest.mark.skipif(
        not (PYTHON and shutil.which("mpirun")), reason="needs Open MPI, and mpi4py somewhere"
    ),
]


def test_measured_steps_are_longer_between_racks_than_in_one() -> None:
    cases = tuple(
        live.Case(pattern=Pattern.RING, method=method, jobs=live.JOBS)
        for method in (CLOSED, SEQUENTIAL)
    )
    lines: list[str] = []

    fast, slow = compare(
        *need_mpi(Path(PYTHON)), chosen=cases, seconds=1.0, show_progress=lines.append
    )

    assert slow.measured_s > 2 * fast.measured_s
    assert slow.simulated_s > 2 * fast.simulated_s
    assert len(lines) == 3


def test_python_without_mpi4py_is_rejected_before_the_bed_is_built(tmp_path: Path) -> None:
    with pytest.raises(WorldError, match="is no Python with mpi4py"):
        need_mpi(tmp_path / "python")
