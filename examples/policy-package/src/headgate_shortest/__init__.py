"""The job with the fewest tasks left goes first; each task on the first node that has room."""

from __future__ import annotations

from headgate.base.rng import Random
from headgate.model import Job
from headgate.planning.place.why import no_room
from headgate.ports import PolicyInfo
from headgate.protocol import Plan, Reason, Refusal
from headgate.protocol.reasons import PolicyRefuses
from headgate.state import Scratch, Snapshot


class ShortestFirst:
    """The policy `shortest`; it has no state between rounds."""

    name = "shortest"

    def refuses(self, job: Job) -> Reason | None:
        """Refuse gangs: tasks are placed one by one."""
        if job.gang and len(job.tasks) > 1:
            return PolicyRefuses(policy=self.name, what="gangs")
        return None

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        """Place tasks in a scratch, the shortest job's first; explain why the others wait."""
        del rng
        scratch, refusals = Scratch(snapshot), []
        left = snapshot.jobs.unfinished
        for job in sorted(snapshot.waiting_jobs(), key=lambda row: (left[row], row)):
            waits = [self._place(scratch, task) for task in snapshot.waiting_of(job).tolist()]
            reason = next((reason for reason in waits if reason is not None), None)
            if reason is not None:
                refusals.append(Refusal(reason=reason, jobs=(job,)))
        return Plan(steps=scratch.steps(), refusals=tuple(refusals))

    def _place(self, scratch: Scratch, task: int) -> Reason | None:
        """Place a task on the first node where it fits, or return why it waits."""
        snapshot = scratch.snapshot
        if any(scratch.place(task, node) for node in snapshot.live_nodes()):
            return None
        return no_room(scratch, task)


INFO = PolicyInfo(
    name="shortest",
    idea="the job with the fewest tasks left goes first",
    source="shortest remaining work first",
    parameters=(),
    make=ShortestFirst,
)
