"""Runs a scenario or a trace from its first submission to its last end, and gathers its figures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headgate.base.errors import InvariantBroken, Problem, SpecError
from headgate.engine import Engine, drive
from headgate.metrics.busy import BusyGpus
from headgate.metrics.summary import fairness, mean_active_jobs, run_times_s, summary
from headgate.model import Bandwidth, Gpu, Job, Node, Queue, Shard, Task
from headgate.planning.door import refuse
from headgate.ports import Policy
from headgate.protocol import (
    BandwidthMeasured,
    Command,
    Event,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    QueueChanged,
    ReplicaAdded,
)
from headgate.protocol.reasons import PolicyBroke
from headgate.sim.network import FluidNetwork
from headgate.sim.world import SimulatedWorld, Start
from headgate.spec import Links, Scenario
from headgate.state import State
from headgate.traces import Trace

Observer = Callable[[tuple[Event, ...], Sequence[Command]], None]

_DEFAULT = Queue(name="default")
_POOL = "pool"
_POOL_CPUS = 1 << 30
_POOL_LINKS = Links(disk_bytes_per_s=1, node_link_bytes_per_s=1, rack_uplink_bytes_per_s=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What is simulated: a cluster, what it holds, who submits what and when, and what fails.

    Launches take `launch_delays_s`, one after the other, to begin; see `SimulatedWorld`.
    """

    nodes: tuple[Node, ...]
    links: Links
    queues: tuple[Queue, ...]
    submissions: tuple[tuple[float, Job], ...]
    bandwidth: Bandwidth | None = None
    replicas: tuple[tuple[Shard, str], ...] = ()
    faults: tuple[NodeLost | NodeJoined, ...] = ()
    rejected: Counter[str] = field(default_factory=Counter)
    seed: int = 0
    decision_latency_s: float = 0.0
    launch_delays_s: tuple[float, ...] = ()

    @property
    def gpus(self) -> int:
        """All GPUs of the cluster."""
        return sum(len(node.gpus) for node in self.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a simulation ended: the last state, every launch, and the figures of it."""

    state: State
    starts: tuple[Start, ...]
    figures: dict[str, Any]


def from_scenario(scenario: Scenario, policy: Policy, trace: Trace | None = None) -> Simulation:
    """Return a scenario's simulation; its trace, where it has one, read already.

    Raises SpecError naming every job that the policy cannot place; jobs of a trace that it cannot
    place, or that fit no node, are counted as rejected instead.
    """
    submissions, rejected = scenario.submissions, Counter[str]()
    if trace is not None:
        most = max((len(node.gpus) for node in scenario.nodes), default=1)
        queue = next(queue for queue in scenario.queues if queue.name == _DEFAULT.name)
        submissions, rejected = _trace_jobs(trace, queue, scenario.nodes, policy, max(1, most))
    else:
        queues = {queue.name: queue for queue in scenario.queues}
        refused = [
            (job, refuse(job, queues[job.queue], scenario.nodes, policy)) for _, job in submissions
        ]
        problems = [Problem(path=f"jobs.{job.id}", problem=str(r)) for job, r in refused if r]
        if problems:
            raise SpecError(problems, code="rejected")
    return Simulation(
        nodes=scenario.nodes,
        links=scenario.links,
        bandwidth=scenario.bandwidth,
        queues=scenario.queues,
        replicas=scenario.replicas,
        submissions=submissions,
        faults=scenario.faults,
        rejected=rejected,
        seed=scenario.seed,
        decision_latency_s=scenario.decision_latency_s,
    )


def from_trace(
    trace: Trace, policy: Policy, *, gpus: int, seed: int, decision_latency_s: float = 0.0
) -> Simulation:
    """Return the simulation of a trace on a pool of GPUs that are all alike."""
    node = Node(id=_POOL, rack=_POOL, gpus=(Gpu(memory_bytes=0),) * gpus, cpus=_POOL_CPUS)
    submissions, rejected = _trace_jobs(trace, _DEFAULT, (node,), policy, gpus)
    return Simulation(
        nodes=(node,),
        links=_POOL_LINKS,
        queues=(_DEFAULT,),
        submissions=submissions,
        rejected=rejected,
        seed=seed,
        decision_latency_s=decision_latency_s,
    )


def _trace_jobs(
    trace: Trace, queue: Queue, nodes: tuple[Node, ...], policy: Policy, most_gpus: int
) -> tuple[tuple[tuple[float, Job], ...], Counter[str]]:
    """Return the trace's jobs that can run, in its order, and how many cannot, by reason.

    A job is one gang of its GPUs: one task where a node can hold them, else tasks of `most_gpus`.
    """
    total = sum(len(node.gpus) for node in nodes)
    submissions: list[tuple[float, Job]] = []
    rejected: Counter[str] = Counter()
    rows = zip(
        trace.job_id.tolist(),
        trace.submit_s.tolist(),
        trace.duration_s.tolist(),
        trace.gpus.tolist(),
        strict=True,
    )
    for job_id, submit_s, duration_s, gpus in rows:
        if gpus > total:
            rejected["NothingFits"] += 1
            continue
        job = _gang(str(job_id), gpus, duration_s, most_gpus)
        reason = refuse(job, queue, nodes, policy)
        if reason is None:
            submissions.append((submit_s, job))
        else:
            rejected[reason.code] += 1
    return tuple(submissions), rejected


def _gang(job_id: str, gpus: int, duration_s: float, most_gpus: int) -> Job:
    parts = [most_gpus] * (gpus // most_gpus) + [gpus % most_gpus] * (gpus % most_gpus > 0)
    tasks = tuple(Task(gpus=part, compute_s=duration_s) for part in parts or [0])
    return Job(id=job_id, name=job_id, user="user", queue=_DEFAULT.name, tasks=tasks, gang=True)


def run(simulation: Simulation, policy: Policy, *, observe: Sequence[Observer] = ()) -> Outcome:
    """Run a simulation to its end; the same input and seed give the same outcome anywhere."""
    engine, busy = Engine(), BusyGpus()
    world = SimulatedWorld(
        _facts(simulation),
        network=_network(simulation.links),
        policy=policy,
        seed=simulation.seed,
        decision_latency_s=simulation.decision_latency_s,
        launch_delays_s=simulation.launch_delays_s,
    )
    drive(engine, world, observe=(_soundness(engine.state, policy), busy, *observe))
    node, rack, cluster = world.network.moved_bytes
    latency_s = simulation.decision_latency_s if world.decisions else 0.0
    figures = {
        "policy": policy.name,
        "seed": simulation.seed,
        **summary(engine.state, busy_gpu_s=busy.gpu_s, gpus=simulation.gpus),
        "jobs_rejected": simulation.rejected.total(),
        "rejected": dict(sorted(simulation.rejected.items())),
        "fairness": None,
        "bytes": {"node": node, "rack": rack, "cluster": cluster},
        "decisions": {"count": world.decisions, "mean_s": latency_s, "max_s": latency_s},
    }
    return Outcome(state=engine.state, starts=tuple(world.starts), figures=figures)


def _soundness(state: State, policy: Policy) -> Observer:
    """Return an observer that raises when a policy plans the impossible.

    The engine would ask it again after a pause, which helps where the world changes; here it would
    plan the same for ever.
    """

    def see(batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        del batch, commands
        for refusal in state.refusals[:1]:
            if isinstance(refusal.reason, PolicyBroke):
                raise InvariantBroken(f"policy {policy.name}: {refusal.reason.message}")

    return see


def _network(links: Links) -> FluidNetwork:
    return FluidNetwork(
        {},
        disk_bytes_per_s=links.disk_bytes_per_s,
        node_link_bytes_per_s=links.node_link_bytes_per_s,
        rack_uplink_bytes_per_s=links.rack_uplink_bytes_per_s,
        aggregation_bytes_per_s=links.aggregation_bytes_per_s,
    )


def _facts(simulation: Simulation) -> list[Event]:
    facts: list[Event] = [QueueChanged(at=0.0, queue=queue) for queue in simulation.queues]
    if simulation.bandwidth is not None:
        facts.append(BandwidthMeasured(at=0.0, bandwidth=simulation.bandwidth))
    facts += [NodeJoined(at=0.0, node=node) for node in simulation.nodes]
    facts += [ReplicaAdded(at=0.0, shard=shard, node=node) for shard, node in simulation.replicas]
    facts += simulation.faults
    facts += [JobSubmitted(at=at, job=job) for at, job in simulation.submissions]
    return facts


def with_fairness(
    simulation: Simulation,
    policy: Policy,
    outcome: Outcome,
    *,
    step: Callable[[str], None] = lambda job: None,
) -> Outcome:
    """Return the outcome with fairness; see `ideal_times_s` for what a time is compared with."""
    run_s = run_times_s(outcome.state)
    ideal_s = ideal_times_s(simulation, policy, outcome, step=step)
    return replace(outcome, figures={**outcome.figures, "fairness": fairness(run_s, ideal_s)})


def ideal_times_s(
    simulation: Simulation,
    policy: Policy,
    outcome: Outcome,
    *,
    step: Callable[[str], None] = lambda job: None,
) -> dict[str, float]:
    """Return per finished job how long it takes alone, from its first start to its last end.

    Flow paper, section 5.2: t_ideal is the time of the job alone on the same cluster with at most
    max(1, Q/m) GPUs and the whole network; m is the limit of jobs in flight where every queue used
    has one, else the time-mean number of active jobs. A gang, or a task of several GPUs, gets at
    least the GPUs that it cannot run without. Nothing fails while a job runs alone.
    """
    run_s = run_times_s(outcome.state)
    share = _ideal_gpus(simulation, outcome)
    ideal_s: dict[str, float] = {}
    for _, job in simulation.submissions:
        if job.id not in run_s:
            continue
        widest = sum(t.gpus for t in job.tasks) if job.gang else max(t.gpus for t in job.tasks)
        queue = Queue(name=job.queue, max_gpus=max(share, widest))
        alone = replace(simulation, queues=(queue,), submissions=((0.0, job),), faults=())
        ideal_s |= run_times_s(run(alone, policy).state)
        step(job.id)
    return ideal_s


def _ideal_gpus(simulation: Simulation, outcome: Outcome) -> int:
    used = {job.queue for _, job in simulation.submissions}
    limits = [q.max_jobs_in_flight for q in simulation.queues if q.name in used]
    given = [limit for limit in limits if limit is not None]
    m = sum(given) if len(given) == len(limits) else mean_active_jobs(outcome.state)
    return max(1, math.floor(simulation.gpus / max(m, 1.0) + 1e-9))
