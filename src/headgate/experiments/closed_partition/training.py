"""The training effect: a job on 4 GPUs of 4 servers against one on 4 GPUs of one server.

ResNet-50 by data parallelism, an all-reduce of its gradients after each step, in a ring, on the
published tree: two GPUs on a PCIe switch, two switches on a CPU, two CPUs in a server, servers on
a top-of-rack switch. The published text names neither bandwidths nor the network of the servers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.model import Communication, Pattern
from headgate.model.topology import Tree
from headgate.planning.links.traffic import traffic_of

GRADIENT_BYTES = 25_557_032 * 4
"""ResNet-50's parameters, in 4 bytes each."""

STEP_S = 1 / 6.843 / 4
"""Seconds of computing: 16 of 64 images, at the speed of one A100 with all 64 (ElasticFlow)."""

SERVER_GBIT_PER_S = (10, 25, 100)
"""Links of a server that are compared; the first one is that of the claim."""

_GPU, _SWITCH, _CPU = 12e9, 12e9, 20e9  # PCIe 3.0 x16, twice; QPI; bytes per second
_SERVERS, _IN_SERVER = 4, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingThroughput:
    """Steps per second on one network, without other jobs."""

    gbit_per_s: float
    one_server: float
    four_servers: float

    @property
    def ratio(self) -> float:
        """The throughput on four servers relative to one."""
        return self.four_servers / self.one_server


def trainings() -> tuple[TrainingThroughput, ...]:
    """Return the throughputs on each network."""
    return tuple(_training(rate) for rate in SERVER_GBIT_PER_S)


def _training(gbit_per_s: float) -> TrainingThroughput:
    tree = Tree.uniform(
        (_SERVERS, 2, 2, 2),
        (gbit_per_s * 1e9 / 8, _CPU, _SWITCH, _GPU),
        level_names=("ToR", "server", "CPU", "PCIe switch", "GPU"),
    )
    together = np.arange(4)
    return TrainingThroughput(
        gbit_per_s=gbit_per_s,
        one_server=_steps_per_s(tree, together),
        four_servers=_steps_per_s(tree, together * _IN_SERVER),
    )


def _steps_per_s(tree: Tree, gpus: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> float:
    step = Communication(pattern=Pattern.RING, bytes_per_step=GRADIENT_BYTES, step_s=STEP_S)
    return 1 / traffic_of(tree, gpus, step).step_alone_s(tree.capacity)
