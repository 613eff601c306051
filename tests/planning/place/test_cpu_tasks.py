"""Tasks without a GPU are placed where reading is cheapest; the others have a reason."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.model import CPUS
from headgate.planning.place.cpu_tasks import place_cpu_tasks
from headgate.state import Scratch, Snapshot
from headgate.testing.random_worlds import random_state


def naive_read_s(snapshot: Snapshot, task: int, node: int) -> float:
    """Every shard at the bandwidth of its nearest replica; without one, as from another rack."""
    near, rack, far = 0, 0, 0
    for shard in snapshot.reads(task):
        holders, size_bytes = snapshot.replicas(shard), snapshot.shards.size_bytes[shard]
        if node in holders:
            near += size_bytes
        elif any(snapshot.nodes.rack[n] == snapshot.nodes.rack[node] for n in holders):
            rack += size_bytes
        else:
            far += size_bytes
    bandwidth = snapshot.bandwidth
    return (
        near / bandwidth.disk_bytes_per_s
        + rack / bandwidth.rack_bytes_per_s
        + far / bandwidth.cluster_bytes_per_s
    )


@settings(max_examples=200)
@given(seed=st.integers(0, 10**6))
def test_each_task_is_placed_on_its_cheapest_node_that_fits_or_refused(seed: int) -> None:
    snapshot = random_state(seed).freeze()
    scratch = Scratch(snapshot)
    refusals = place_cpu_tasks(scratch)
    free = {n: snapshot.nodes.free.at(n, CPUS) for n in snapshot.live_nodes()}
    for placement in scratch.starts:
        task, need = placement.task, snapshot.demand(placement.task).cpus_milli
        cost = {n: naive_read_s(snapshot, task, n) for n in free if free[n] >= need}
        expected_s = snapshot.expected_read_s(task, placement.node)
        assert cost[placement.node] == pytest.approx(expected_s)
        best = min(cost, key=lambda n, c=cost: (c[n], -free[n], n))
        assert placement.node == best
        free[placement.node] -= need
    placed = [p.task for p in scratch.starts]
    refused = [job for r in refusals for job in r.jobs]
    for job in snapshot.waiting_cpu_jobs():
        if snapshot.job(job).gang and snapshot.jobs.task_count[job] > 1:
            continue
        waits = [t for t in snapshot.waiting_of(job) if not snapshot.tasks.gpus[t]]
        assert (job in refused) == any(t not in placed for t in waits)
