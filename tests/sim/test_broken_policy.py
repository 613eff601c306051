"""A simulation under a faulty policy ends with an error; it does not retry forever."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from headgate.base.errors import InvariantBroken
from headgate.policies.ordered.fifo import FirstInFirstOut
from headgate.protocol import Plan, Start, Steps
from headgate.sim import run as sim
from headgate.state import Snapshot
from headgate.traces import Trace


class Wild(FirstInFirstOut):
    name = "wild"

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        return Plan(steps=Steps.of([Start(0, 0, (99,))]))


@pytest.mark.parametrize("latency_s", [0.0, 2.0])
def test_infeasible_plan_ends_a_simulation(latency_s: float) -> None:
    trace = Trace(
        job_id=np.arange(1), submit_s=np.zeros(1), duration_s=np.ones(1),
        gpus=np.ones(1, np.int64),
    )  # fmt: skip
    simulation = sim.from_trace(trace, Wild(), gpus=4, seed=0, decision_latency_s=latency_s)
    with pytest.raises(InvariantBroken, match=r"policy wild: .* GPU 99 of pool is not free"):
        sim.run(simulation, Wild())
