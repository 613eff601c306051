"""Tasks without a GPU (reduces, merges): placed at once where their inputs are, on CPU slots.

They compete for no GPU, so policies that care for locality place them alike, before GPUs.
"""

from __future__ import annotations

from headgate.protocol import Refusal
from headgate.protocol.reasons import NoFreeCpu
from headgate.state import Scratch


def place_cpu_tasks(scratch: Scratch) -> tuple[Refusal, ...]:
    """Place WAITING tasks without a GPU, jobs in order of arrival, each at its cheapest node.

    Ties go to the node with most free slots, then to the first. Returns why the rest waits.
    O(tasks x nodes x shards of a task).
    """
    snapshot = scratch.snapshot
    nodes = snapshot.live_nodes()
    refusals = []
    for job in snapshot.waiting_cpu_jobs():
        if snapshot.job(job).gang and snapshot.jobs.task_count[job] > 1:
            continue  # placed whole or not at all, by the policy
        for task in snapshot.waiting_of(job).tolist():
            if snapshot.tasks.gpus[task]:
                continue
            need = snapshot.tasks.cpus[task]
            room = [n for n in nodes if scratch.free_cpus(n) >= need]
            if not room:
                most = max((scratch.free_cpus(n) for n in nodes), default=0)
                reason = NoFreeCpu(needed_cpus=need, most_free_cpus=most)
                refusals.append(Refusal(reason=reason, jobs=(job,)))
                break
            best = min(
                room, key=lambda n: (snapshot.expected_read_s(task, n), -scratch.free_cpus(n), n)
            )
            scratch.place(task, best)
    return tuple(refusals)
