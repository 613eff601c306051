"""Reports of a node with GPUs, without, and with broken ones."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from headgate.live.node.node_status import gpu_closeness, gpu_processes, probe_node
from headgate.model.topology.closeness import node_shape

ASK = """
import json
from dataclasses import asdict
from headgate.live.node.node_status import gpu_closeness, gpu_processes, probe_node
gpus = [asdict(gpu) for gpu in probe_node().gpus]
print(json.dumps([gpus, gpu_closeness(), gpu_processes()]))
"""
Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """Ask a fresh process that finds our fake driver first."""
    if (compiler := shutil.which("gcc")) is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("driver")
    source = Path(__file__).parent / "fake_nvml.c"
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(
        [compiler, "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, source], check=True
    )

    def ask(**settings: int) -> Any:
        fake = {f"FAKE_NVML_{name.upper()}": str(value) for name, value in settings.items()}
        done = subprocess.run(
            [sys.executable, "-c", ASK],
            env={**os.environ, "LD_LIBRARY_PATH": str(folder), **fake},
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(done.stdout)

    return ask


@pytest.fixture(scope="module")
def gpus_reported(reported: Ask) -> Ask:
    return lambda **settings: reported(**settings)[0]


def gpu(index: int, utilisation: float | None) -> dict[str, Any]:
    return {
        "index": index,
        "name": f"Fake {index}",
        "memory_bytes": 16 << 30,
        "memory_used_bytes": (index + 1) << 30,
        "utilisation": utilisation,
    }


def test_report_describes_this_machine(tmp_path: Path) -> None:
    report = probe_node(tmp_path)
    assert report.cpus == psutil.cpu_count()
    assert 0 <= report.cpu_utilisation <= 1
    assert 0 < report.memory_free_bytes <= report.memory_bytes
    assert 0 < report.disk_free_bytes <= report.disk_bytes
    assert json.loads(json.dumps(asdict(report)))["cpus"] == report.cpus


def test_missing_disk_has_no_free_bytes(tmp_path: Path) -> None:
    report = probe_node(tmp_path / "gone")
    assert (report.disk_bytes, report.disk_free_bytes) == (0, 0)


def test_all_gpus_are_reported(gpus_reported: Ask) -> None:
    assert gpus_reported(gpus=3) == [gpu(0, 0.0), gpu(1, 0.1), gpu(2, 0.2)]


def test_a_driver_without_gpus(gpus_reported: Ask) -> None:
    assert gpus_reported(gpus=0) == []


def test_a_lost_gpu_is_left_out(gpus_reported: Ask) -> None:
    assert gpus_reported(gpus=3, lost=1) == [gpu(0, 0.0), gpu(2, 0.2)]


def test_gpu_without_a_utilisation_is_reported(gpus_reported: Ask) -> None:
    assert gpus_reported(gpus=2, silent=0) == [gpu(0, None), gpu(1, 0.1)]


def test_closeness_of_gpus_is_reported(reported: Ask) -> None:
    near, nvlinks = reported(gpus=8)[1]
    assert nvlinks == 0
    found = node_shape(np.array(near))
    assert [(level.name, level.groups) for level in found.levels] == [
        ("socket", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("switch", ((0, 1), (2, 3), (4, 5), (6, 7))),
    ]
    for unknown in ({"gpus": 1}, {"gpus": 4, "silent": 3}, {"gpus": 4, "lost": 2}):
        assert reported(**unknown)[1] == [[], 0]


def test_nvlinks_between_gpus_and_through_switches_are_reported(reported: Ask) -> None:
    near, nvlinks = reported(gpus=4, nvlinks=2)[1]
    assert nvlinks == 2
    assert near == [[0, 1, 4, 4], [1, 0, 4, 4], [4, 4, 0, 1], [4, 4, 1, 0]]
    near, nvlinks = reported(gpus=4, switched=6)[1]
    assert nvlinks == 6
    assert near == [[0, 1, 1, 4], [1, 0, 1, 4], [1, 1, 0, 2], [4, 4, 2, 0]]
    found = node_shape(np.array(near), nvlinks=nvlinks)
    assert found.levels[-1].groups == ((0, 1, 2), (3,))
    assert found.gpu_bytes_per_s == 150e9


def test_memory_of_gpus_is_reported_by_process(reported: Ask) -> None:
    mib, me = 1 << 20, str(os.getpid())
    assert reported(gpus=3, pid=7, silent=0, lost=1)[2] == {"2": {me: mib, "7": (3 << 30) - mib}}
    assert reported(gpus=2)[2] == {}


def test_no_driver_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    import pynvml

    def missing() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", missing)
    assert probe_node().gpus == ()
    assert gpu_closeness() == ((), 0)
    assert gpu_processes() == {}
