"""Run a scenario or a trace from its first submission to its last end; compute its figures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import Any, Protocol

from headgate.base.errors import InvariantBroken, Problem, SpecError
from headgate.engine import Engine, drive
from headgate.metrics.busy import BusyGpus
from headgate.metrics.deadlines import DeadlineFigures
from headgate.metrics.fluid_sharing import fluid_ends
from headgate.metrics.loans import LoanFigures
from headgate.metrics.nodes import NodeFigures
from headgate.metrics.promises import Promises
from headgate.metrics.records import JobRecorder, JobRecords
from headgate.metrics.summary import (
    fairness,
    finish_time_fairness,
    mean_active_jobs,
    reservations,
    summary,
    wait_by_size,
)
from headgate.model import Bandwidth, Gpu, Job, Node, Queue, Shard
from headgate.model.queue import above
from headgate.model.scaling import Scaling
from headgate.model.topology import ClusterTopology
from headgate.planning.links.fluid_network import FluidNetwork
from headgate.planning.place.submission_check import check_submission
from headgate.ports import Policy
from headgate.protocol import (
    BandwidthMeasured,
    Command,
    Event,
    NodeJoined,
    NodeLost,
    PlanFailed,
    PlanRejected,
    QueueChanged,
    ReplicaAdded,
    ScalingChanged,
    TopologyChanged,
)
from headgate.sim.forecasts import ForecastCheck
from headgate.sim.trace_jobs import TraceJobs, TraceModel
from headgate.sim.world import SimulatedWorld
from headgate.spec import Links, Scenario
from headgate.traces import JobHistory

Observer = Callable[[tuple[Event, ...], Sequence[Command]], None]

ARCHIVED_TOGETHER = 512  # jobs
_MODEL = TraceModel()
_POOL = "pool"
_POOL_CPUS = 1 << 30
_POOL_LINKS = Links(disk_bytes_per_s=1, node_link_bytes_per_s=1, rack_uplink_bytes_per_s=1)


class TimedSubmissions(Protocol):
    """Jobs with their times of submission, which can be iterated repeatedly."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[tuple[float, Job]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """The input of a simulation: a cluster, its replicas, submissions with times, and faults.

    `submissions` are in order of time, or a tuple in any order; only in a tuple jobs come after
    others. The n-th launch is
    delayed by the n-th of `launch_delays_s`, one after a task's first also by `resume_s`; see
    `SimulatedWorld`.
    """

    nodes: tuple[Node, ...]
    links: Links
    queues: tuple[Queue, ...]
    submissions: TimedSubmissions
    bandwidth: Bandwidth | None = None
    replicas: tuple[tuple[Shard, str], ...] = ()
    faults: tuple[NodeLost | NodeJoined, ...] = ()
    rejected: Counter[str] = field(default_factory=Counter)
    seed: int = 0
    decision_latency_s: float = 0.0
    launch_delays_s: tuple[float, ...] = ()
    resume_s: float = 0.0
    topology: ClusterTopology | None = None
    scaling: Scaling | None = None

    @property
    def gpus(self) -> int:
        """All GPUs of the cluster."""
        return sum(len(node.gpus) for node in self.nodes)

    def arrivals(self) -> Iterable[tuple[float, Job]]:
        """Return the submissions in order of time, equal times in the order given."""
        if isinstance(self.submissions, tuple):
            return sorted(self.submissions, key=itemgetter(0))
        return self.submissions


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a simulation: records of the jobs, in order of arrival, and the figures."""

    jobs: JobRecords
    figures: dict[str, Any]


def from_scenario(
    scenario: Scenario,
    policy: Policy,
    trace: JobHistory | None = None,
    model: TraceModel = _MODEL,
) -> Simulation:
    """Return a scenario's simulation; `trace` is its trace, if it has one, simulated as `model`.

    Raises SpecError `rejected` naming every job that fails the submission check; jobs of a trace
    that fail it are counted as rejected instead.
    """
    queues = {queue.name: queue for queue in scenario.queues}
    scaling = scenario.scaling
    submissions: TimedSubmissions = scenario.submissions
    rejected = Counter[str]()
    if trace is not None:
        jobs = TraceJobs(
            trace,
            queues=scenario.queues,
            nodes=scenario.nodes,
            policy=policy,
            model=replace(model, communication=scenario.communication),
        )
        submissions, rejected = jobs, jobs.rejected
        queues = {queue.name: queue for queue in jobs.queues}
    else:
        refused = [
            (
                job,
                check_submission(job, [*above(queues, job.queue)], scenario.nodes, policy, scaling),
            )
            for _, job in submissions
        ]
        problems = [Problem(path=f"jobs.{job.id}", problem=str(r)) for job, r in refused if r]
        if problems:
            raise SpecError(problems, code="rejected")
    return Simulation(
        nodes=scenario.nodes,
        links=scenario.links,
        bandwidth=scenario.bandwidth,
        queues=tuple(queues.values()),
        replicas=scenario.replicas,
        submissions=submissions,
        faults=scenario.faults,
        rejected=rejected,
        seed=scenario.seed,
        decision_latency_s=scenario.decision_latency_s,
        resume_s=model.resume_s or 0.0,
        topology=scenario.topology,
        scaling=scenario.scaling,
    )


def from_trace(
    trace: JobHistory,
    policy: Policy,
    *,
    gpus: int,
    seed: int,
    decision_latency_s: float = 0.0,
    model: TraceModel = _MODEL,
) -> Simulation:
    """Return the simulation of a trace on a pool of equal GPUs."""
    node = Node(id=_POOL, rack=_POOL, gpus=(Gpu(memory_bytes=0),) * gpus, cpus=_POOL_CPUS)
    jobs = TraceJobs(trace, queues=(), nodes=(node,), policy=policy, model=model)
    return Simulation(
        nodes=(node,),
        links=_POOL_LINKS,
        queues=jobs.queues,
        submissions=jobs,
        rejected=jobs.rejected,
        seed=seed,
        decision_latency_s=decision_latency_s,
        resume_s=model.resume_s or 0.0,
    )


def run(
    simulation: Simulation,
    policy: Policy,
    *,
    observe: Sequence[Observer] = (),
    forecasts: ForecastCheck | None = None,
) -> Outcome:
    """Run a simulation to its end; the same input and seed give the same outcome anywhere.

    With `forecasts`, their figures are among the outcome's.
    Memory: the jobs that have not ended, some thousands that have, and 45 bytes for each job;
    observers may keep more.
    """
    engine, busy = Engine(), BusyGpus()
    recorder = JobRecorder(engine.state, len(simulation.submissions))
    world = SimulatedWorld(
        _facts(simulation),
        submissions=simulation.arrivals(),
        network=_network(simulation.links),
        policy=policy,
        seed=simulation.seed,
        decision_latency_s=simulation.decision_latency_s,
        launch_delays_s=simulation.launch_delays_s,
        resume_s=simulation.resume_s,
    )
    nodes, promises, lent = NodeFigures(), Promises(), LoanFigures(engine.state)
    deadlines = DeadlineFigures(engine.state)
    observers: list[Observer] = [
        _plan_checker(policy), busy, recorder, nodes, promises, lent, deadlines, *observe,
    ]  # fmt: skip
    if forecasts is not None:
        observers.append(partial(forecasts.observe, engine))
    drive(engine, world, observe=(*observers, _archivist(recorder, world, _awaited(simulation))))
    records = recorder.records()
    node, rack, cluster = world.network.moved_bytes
    latency_s = simulation.decision_latency_s if world.decisions else 0.0
    figures = {
        "policy": policy.name,
        "seed": simulation.seed,
        **summary(
            records, busy_gpu_s=busy.gpu_s, gpus=simulation.gpus, tasks_finished=world.finished
        ),
        "jobs_rejected": simulation.rejected.total(),
        "rejected": dict(sorted(simulation.rejected.items())),
        "fairness": None,
        "bytes": {"node": node, "rack": rack, "cluster": cluster},
        "decisions": {"count": world.decisions, "mean_s": latency_s, "max_s": latency_s},
        **_trace_figures(simulation, records),
        "reservations": reservations(records) | promises.figures(),
        **lent.figures(),
        **deadlines.figures(),
        **nodes.figures(world.now()),
    }
    figures |= world.communicating.figures(world.now(), figures["makespan_s"])
    if forecasts is not None:
        figures["forecasts"] = forecasts.figures()
    return Outcome(jobs=records, figures=figures)


def _trace_figures(simulation: Simulation, records: JobRecords) -> dict[str, Any]:
    """Return the figures that only jobs of a trace have; O(jobs x log jobs)."""
    if not isinstance(simulation.submissions, TraceJobs):
        return {"wait_by_size": None, "finish_time_fairness": None}
    jobs = simulation.submissions.history()
    fluid_ends_at = fluid_ends(
        records.submitted_at, jobs.compute_s, jobs.gpus, jobs.group, gpus=simulation.gpus
    )
    return {
        "wait_by_size": wait_by_size(records, jobs.gpus),
        "finish_time_fairness": finish_time_fairness(records, fluid_ends_at),
    }


def _awaited(simulation: Simulation) -> frozenset[str]:
    """Return the jobs that others come after; those of a stream come after none."""
    if not isinstance(simulation.submissions, tuple):
        return frozenset()
    return frozenset(name for _, job in simulation.submissions for name in job.after)


def _archivist(recorder: JobRecorder, world: SimulatedWorld, awaited: frozenset[str]) -> Observer:
    """Return an observer that archives ended jobs in world and engine, many at a time.

    Those that others come after stay: a later job may name them.
    """

    def see(batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        del batch, commands
        if len(recorder.ended) >= ARCHIVED_TOGETHER:
            world.archive(tuple(job for job in recorder.ended if job not in awaited))
            recorder.ended.clear()

    return see


def _plan_checker(policy: Policy) -> Observer:
    """Return an observer that raises InvariantBroken for a rejected plan or a failed policy.

    The engine would retry after a pause; here nothing changes, so it would fail forever.
    """

    def see(batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        del commands
        for event in batch:
            if isinstance(event, PlanFailed | PlanRejected):
                raise InvariantBroken(f"policy {policy.name}: {event.message}")

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
    if simulation.scaling is not None:
        facts.append(ScalingChanged(at=0.0, scaling=simulation.scaling))
    if simulation.topology is not None:
        facts.append(TopologyChanged(at=0.0, topology=simulation.topology))
    facts += [NodeJoined(at=0.0, node=node) for node in simulation.nodes]
    facts += [ReplicaAdded(at=0.0, shard=shard, node=node) for shard, node in simulation.replicas]
    facts += simulation.faults
    return facts


def with_fairness(
    simulation: Simulation,
    policy: Policy,
    outcome: Outcome,
    *,
    step: Callable[[str], None] = lambda job: None,
) -> Outcome:
    """Return the outcome with fairness, relative to the times of `ideal_times_s`."""
    run_s = run_times_s(simulation, outcome)
    ideal_s = ideal_times_s(simulation, policy, outcome, step=step)
    return replace(outcome, figures={**outcome.figures, "fairness": fairness(run_s, ideal_s)})


def run_times_s(simulation: Simulation, outcome: Outcome) -> dict[str, float]:
    """Return per finished job the time from its first task's start to its last task's end."""
    times = zip(simulation.arrivals(), outcome.jobs.run_s.tolist(), strict=True)
    return {job.id: run_s for (_, job), run_s in times if not math.isnan(run_s)}


def ideal_times_s(
    simulation: Simulation,
    policy: Policy,
    outcome: Outcome,
    *,
    step: Callable[[str], None] = lambda job: None,
) -> dict[str, float]:
    """Return per finished job its time alone, from its first start to its last end, in seconds.

    Flow paper, section 5.2: t_ideal is the time of the job alone on the same cluster with at most
    max(1, Q/m) GPUs and the whole network; m is the limit of jobs in flight where every queue used
    has one, else the time-mean number of active jobs. A gang, or a task of several GPUs, gets at
    least the GPUs that it cannot run without. Nothing fails while a job runs alone.
    """
    run_s = run_times_s(simulation, outcome)
    share = _ideal_gpus(simulation, outcome)
    ideal_s: dict[str, float] = {}
    for _, job in simulation.submissions:
        if job.id not in run_s:
            continue
        gpus = [task.demand.gpus for task in job.tasks]
        widest = sum(gpus) if job.gang else max(gpus)
        queue = Queue(name=job.queue, max_gpus=max(share, widest))
        first = ((0.0, replace(job, after=())),)
        alone = replace(simulation, queues=(queue,), submissions=first, faults=())
        ideal_s |= run_times_s(alone, run(alone, policy))
        step(job.id)
    return ideal_s


def _ideal_gpus(simulation: Simulation, outcome: Outcome) -> int:
    used = {job.queue for _, job in simulation.submissions}
    limits = [q.max_jobs_in_flight for q in simulation.queues if q.name in used]
    given = [limit for limit in limits if limit is not None]
    m = sum(given) if len(given) == len(limits) else mean_active_jobs(outcome.jobs)
    return max(1, math.floor(simulation.gpus / max(m, 1.0) + 1e-9))
