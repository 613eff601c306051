"""A recorded live run as a simulation: the same jobs on the same cluster, in virtual time."""

from __future__ import annotations

from dataclasses import replace

from headgate.model import NO_PROGRAM, Job, Node, Shard, result_ids
from headgate.sim.run import Simulation
from headgate.spec import Links
from headgate.state import TaskState
from headgate.state.view import View


def recorded(view: View, *, seed: int = 0) -> Simulation:
    """Return the simulation of a recorded state, with times from the first submission.

    A task computes as long as its last run held its GPU (or slots) without reading, the start of
    processes included, plus the progress saved before; its result has the recorded size. No run is
    stopped at a time limit. Nodes,
    replicas of datasets and bandwidths are the last recorded ones. Each node link has the bandwidth
    measured for a transfer in the rack, each rack uplink that for one across racks: without
    contention a transfer takes its measured time.
    """
    nodes = tuple(_plain(view.node(row)) for row in view.live_nodes())
    first = min(view.jobs.submitted_at.array().tolist(), default=0.0)
    submissions = []
    for row in range(len(view.jobs.state)):
        at = view.jobs.submitted_at[row] - first
        submissions.append((at, _timed(view, row)))
    bandwidth = view.bandwidth
    links = Links(
        disk_bytes_per_s=bandwidth.disk_bytes_per_s,
        node_link_bytes_per_s=max(bandwidth.rack_bytes_per_s, bandwidth.cluster_bytes_per_s),
        rack_uplink_bytes_per_s=bandwidth.cluster_bytes_per_s,
    )
    queues = tuple(view.queue(row) for row in range(len(view.queues.spec)))
    return Simulation(
        nodes=nodes,
        links=links,
        bandwidth=bandwidth,
        queues=queues,
        replicas=_replicas(view),
        submissions=tuple(submissions),
        seed=seed,
    )


def _plain(node: Node) -> Node:
    return replace(node, incarnation="")


def _timed(view: View, row: int) -> Job:
    """Return a job with the recorded times and sizes of its tasks."""
    job = view.job(row)
    tasks = []
    for ordinal, task in enumerate(view.tasks_of(row)):
        compute_s, output_bytes = 0.0, 0
        if view.tasks.state[task] == TaskState.FINISHED:
            held_s = view.tasks.ended_at[task] - view.tasks.launched_at[task]
            computed_s = view.speed(task) * max(0.0, held_s - view.tasks.read_s[task])
            compute_s = view.tasks.progress_s[task] + computed_s
            shards = result_ids(job.id, ordinal, job.tasks[ordinal].parts)
            rows = [view.names.shard_rows[s] for s in shards if s in view.names.shard_rows]
            output_bytes = sum(view.shards.size_bytes[row] for row in rows)
        tasks.append(replace(job.tasks[ordinal], compute_s=compute_s, output_bytes=output_bytes))
    return replace(
        job, tasks=tuple(tasks), program=NO_PROGRAM, submission_key="", time_limit_s=None
    )


def _replicas(view: View) -> tuple[tuple[Shard, str], ...]:
    return tuple(
        (shard, view.node(node).id)
        for dataset in view.datasets.values()
        for shard in dataset.shards
        for node in view.replicas(view.names.shard_rows[shard.id])
    )
