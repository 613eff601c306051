"""How the GPUs of a node are connected, from nvidia-smi's text."""

from __future__ import annotations

import pytest

from headgate.base.errors import SpecError
from headgate.spec import load_topology
from headgate.spec.nvidia_topology import gpus_yaml, parse_nvidia_topology

# two sockets with two PCIe switches each
PCIE = """\
\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tGPU6\tGPU7\tNIC0\tCPU Affinity\tNUMA Affinity\x1b[0m
GPU0\t X \tPIX\tNODE\tNODE\tSYS\tSYS\tSYS\tSYS\tPIX\t0-31\t0
GPU1\tPIX\t X \tNODE\tNODE\tSYS\tSYS\tSYS\tSYS\tPIX\t0-31\t0
GPU2\tNODE\tNODE\t X \tPXB\tSYS\tSYS\tSYS\tSYS\tNODE\t0-31\t0
GPU3\tNODE\tNODE\tPXB\t X \tSYS\tSYS\tSYS\tSYS\tNODE\t0-31\t0
GPU4\tSYS\tSYS\tSYS\tSYS\t X \tPIX\tNODE\tNODE\tSYS\t32-63\t1
GPU5\tSYS\tSYS\tSYS\tSYS\tPIX\t X \tNODE\tNODE\tSYS\t32-63\t1
GPU6\tSYS\tSYS\tSYS\tSYS\tNODE\tNODE\t X \tPIX\tSYS\t32-63\t1
GPU7\tSYS\tSYS\tSYS\tSYS\tNODE\tNODE\tPIX\t X \tSYS\t32-63\t1
NIC0\tPIX\tPIX\tNODE\tNODE\tSYS\tSYS\tSYS\tSYS\t X

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes
"""
BRIDGES = """\
        GPU0    GPU1    GPU2    GPU3    CPU Affinity
GPU0     X      NV2     PHB     SYS     0-7
GPU1    NV2      X      PHB     SYS     0-7
GPU2    PHB     PHB      X      SYS     0-7
GPU3    SYS     SYS     SYS      X      8-15
"""
NVSWITCH = "  GPU0 GPU1 GPU2\nGPU0 X NV12 NV12\nGPU1 NV12 X NV12\nGPU2 NV12 NV12 X\n"


def test_sockets_and_switches() -> None:
    socket, switch = parse_nvidia_topology(PCIE).levels
    assert (socket.name, socket.groups) == ("socket", ((0, 1, 2, 3), (4, 5, 6, 7)))
    assert (switch.name, switch.groups) == ("switch", ((0, 1), (2, 3), (4, 5), (6, 7)))


def test_nvlinks_join_some_gpus() -> None:
    shape = parse_nvidia_topology(BRIDGES)
    assert [(level.name, level.groups) for level in shape.levels] == [
        ("bridge", ((0, 1, 2), (3,))),
        ("nvlink", ((0, 1), (2,), (3,))),
    ]
    assert shape.gpu_bytes_per_s == 50e9


def test_nvlinks_between_all_gpus_leave_no_groups() -> None:
    shape = parse_nvidia_topology(NVSWITCH)
    assert (shape.levels, shape.gpu_bytes_per_s) == ((), 300e9)


@pytest.mark.parametrize("text", [PCIE, BRIDGES, NVSWITCH])
def test_groups_are_written_as_a_topology_file_has_them(text: str) -> None:
    head = "levels: [{name: core}, {name: node, bandwidth: 1e9}]\ntree: [a]\n"
    shape = parse_nvidia_topology(text)
    found = load_topology(head + gpus_yaml(shape))
    assert getattr(found, "shapes") == (shape,)  # noqa: B009  # of a tree


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "topo.txt: has no matrix of GPUs; save the whole output"),
        ("  GPU0 GPU1\nGPU0 X PIX\n", "lacks rows of its matrix"),
        (NVSWITCH.replace("NV12 X NV12", "NV12 X QPI"), r"\(line 3\): unknown connection 'QPI'"),
        (NVSWITCH.replace("GPU1 NV12 X NV12", "GPU1 NV12 X"), "row of GPU1 does not match"),
        (NVSWITCH.replace("GPU0 X", "GPU0 PIX"), "unknown connection 'PIX' of GPU0 and GPU0"),
    ],
)
def test_wrong_text_is_rejected(text: str, problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        parse_nvidia_topology(text)
