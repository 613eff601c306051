"""The flow paper's experiments as simulations, and the figures of each run.

Six setups, each on a network, under a policy and a seed:

- `parallel`: J1 to J36, k of them in flight, a new one whenever one ends;
- `turn`: the same jobs one after the other, each with the whole cluster. Gives the published table
  of jobs in turn, and the ideal called `alone` (paper, 5.3.1 and figure 5);
- `turn-share`: in turn on at most Q/k GPUs. Gives the ideal called `share` (paper, 5.2);
- `users`: ten users, six jobs each, a queue per user, no limit of jobs in flight;
- `users-share`: in turn on at most Q/10 GPUs: the ideal `share` of the users' jobs;
- `supplement`: `parallel` with the small J37 as well.

Runs are independent, so any number of processes may execute them with equal results in equal order.
The paper's policies have no hysteresis, so `slack` is 0 here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from headgate.base.errors import InvariantBroken, Problem, SpecError
from headgate.experiments.flow import jobs as flow_jobs
from headgate.experiments.flow.jobs import (
    QUEUE,
    UPLINK_BYTES_PER_S,
    SimulatorConstants,
    by_users,
    in_parallel,
)
from headgate.experiments.frame.experiment import need_policies
from headgate.model import Queue, RunId
from headgate.planning.place.submission_check import check_submission
from headgate.ports import Policy, PolicyInfo, make_policy
from headgate.protocol import (
    Command,
    Event,
    LaunchTask,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    TaskStopped,
)
from headgate.sim.run import Simulation, run

NETWORKS = tuple(UPLINK_BYTES_PER_S)
CONSTRAINED, UNCONSTRAINED = NETWORKS
USERS, JOBS_PER_USER = 10, 6
IN_PARALLEL = ("gs", "gsp", "gsd", "fs", "fsp", "fsu", "headgate")
BY_USERS = ("capacity", "fair", "fs", "fsp", "headgate")
WITH_SUPPLEMENT = ("fs", "fsp", "fsu", "headgate")
NO_HYSTERESIS = {"slack": 0.0}
PAPERS_OWN = {"gsp": NO_HYSTERESIS, "fsp": NO_HYSTERESIS}

Policies = Mapping[str, PolicyInfo]


class Setup(StrEnum):
    """A kind of experiment; see the module."""

    PARALLEL = "parallel"
    TURN = "turn"
    TURN_SHARE = "turn-share"
    USERS = "users"
    USERS_SHARE = "users-share"
    SUPPLEMENT = "supplement"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRun:
    """One simulation; `drawn`: the intervals of every GPU are also recorded, for a chart."""

    setup: Setup
    network: str
    policy: str
    seed: int
    parallel: int
    drawn: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The time from the start of a job's first task to the end of its last one."""

    job: str
    start_s: float
    end_s: float

    @property
    def run_s(self) -> float:
        """The paper's t_sh."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldInterval:
    """An interval in which a run of a task held a GPU; `lost` if it ended without a result."""

    job: str
    node: str
    gpu: int
    start_s: float
    end_s: float
    lost: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The figures of a run; `makespan_s` is from the start of the first job to the last end.

    `read_bytes` are those read on the reader's node, in its rack and across racks, killed runs
    included; `rounds` are the policy's decisions.
    """

    makespan_s: float
    spans: tuple[Span, ...]
    read_bytes: tuple[float, float, float]
    lost_gpu_s: float
    rounds: int
    held: tuple[HeldInterval, ...] = ()


def choose(known: Policies, names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the policies to compare: those named, else the paper's and Headgate's that exist.

    Raises SpecError `unknown_policy` for an unknown name, `rejected` for a policy that does not
    support the jobs.
    """
    if names is None:
        return tuple(p for p in dict.fromkeys((*IN_PARALLEL, *BY_USERS)) if p in known)
    need_policies(names, known)
    cluster, queue = flow_jobs.nodes(), Queue(name=QUEUE)
    for name in names:
        policy = make_policy(known, name)
        for job in flow_jobs.jobs(SimulatorConstants()):
            if reason := check_submission(job, [queue], cluster, policy):
                text = f"{name} cannot run {job.name}: {reason}"
                raise SpecError([Problem(path="--policies", problem=text)], code="rejected")
    return tuple(dict.fromkeys(names))


def plan(policies: Sequence[str], seeds: Sequence[int], parallel: int) -> tuple[FlowRun, ...]:
    """Return the runs of the experiments; only the first seed's are drawn."""

    def runs(setup: Setup, networks: Sequence[str], names: Sequence[str]) -> Iterator[FlowRun]:
        for network in networks:
            for policy in names:
                for seed in seeds:
                    drawn = setup is Setup.PARALLEL and seed == seeds[0]
                    yield FlowRun(
                        setup=setup,
                        network=network,
                        policy=policy,
                        seed=seed,
                        parallel=parallel,
                        drawn=drawn,
                    )

    one_queue = [p for p in policies if p not in ("capacity", "fair")]
    users = [p for p in policies if p in BY_USERS]
    only_users = [p for p in users if p not in one_queue]
    one = (CONSTRAINED,)
    return (
        *runs(Setup.USERS, one, users),
        *runs(Setup.PARALLEL, NETWORKS, one_queue),
        *runs(Setup.SUPPLEMENT, one, [p for p in policies if p in WITH_SUPPLEMENT]),
        *runs(Setup.TURN_SHARE, NETWORKS, one_queue),
        *runs(Setup.USERS_SHARE, one, users),
        *runs(Setup.TURN, NETWORKS, one_queue),
        *runs(Setup.TURN, one, only_users),
    )


def simulation_of(what: FlowRun, speeds: SimulatorConstants) -> Simulation:
    """Return the simulation of a run."""

    def stream(
        parallel: int, *, max_gpus: int | None = None, supplement: bool = False
    ) -> Simulation:
        return in_parallel(
            what.network,
            what.seed,
            speeds,
            parallel=parallel,
            max_gpus=max_gpus,
            supplement=supplement,
        )

    gpus = sum(len(node.gpus) for node in flow_jobs.nodes())
    match what.setup:
        case Setup.PARALLEL:
            return stream(what.parallel)
        case Setup.SUPPLEMENT:
            return stream(what.parallel, supplement=True)
        case Setup.TURN:
            return stream(1)
        case Setup.TURN_SHARE:
            return stream(1, max_gpus=max(1, gpus // what.parallel))
        case Setup.USERS_SHARE:
            return stream(1, max_gpus=max(1, gpus // USERS))
        case Setup.USERS:
            return by_users(what.network, what.seed, speeds, users=USERS, each=JOBS_PER_USER)


def policy_of(name: str, known: Policies) -> Policy:
    """Return a policy with the paper's parameters."""
    return make_policy(known, name, PAPERS_OWN.get(name))


def measure(simulation: Simulation, policy: Policy, *, drawn: bool = False) -> Measured:
    """Run a simulation and return its figures; raise InvariantBroken if a job did not finish."""
    chart = _Chart()
    outcome = run(simulation, policy, observe=(chart,) if drawn else ())
    figures, jobs = outcome.figures, outcome.jobs
    if figures["jobs_finished"] != len(simulation.submissions):
        text = f"{figures['jobs_finished']} of {len(simulation.submissions)} jobs finished"
        raise InvariantBroken(f"policy {policy.name}: {text}")
    times = zip(jobs.started_at.tolist(), jobs.ended_at.tolist(), strict=True)
    spans = tuple(
        Span(job=job.id, start_s=start_s, end_s=end_s)
        for (_, job), (start_s, end_s) in zip(simulation.arrivals(), times, strict=True)
    )
    moved = figures["bytes"]
    return Measured(
        makespan_s=max(s.end_s for s in spans) - min(s.start_s for s in spans),
        spans=spans,
        read_bytes=(moved["node"], moved["rack"], moved["cluster"]),
        lost_gpu_s=figures["lost_gpu_s"],
        rounds=figures["decisions"]["count"],
        held=tuple(chart.held),
    )


class _Chart:
    """An observer that records the intervals in which runs held GPUs."""

    def __init__(self) -> None:
        self.held: list[HeldInterval] = []
        self._launched: dict[RunId, LaunchTask] = {}
        self._since: dict[RunId, float] = {}

    def __call__(self, batch: tuple[Event, ...], commands: Sequence[Command]) -> None:
        for event in batch:
            match event:
                case TaskStarted():
                    self._since[event.run] = event.at
                case TaskFinished() | TaskFailed() | TaskStopped():
                    self._close(event.run, event.at, lost=not isinstance(event, TaskFinished))
                case _:
                    pass
        self._launched |= {c.run: c for c in commands if isinstance(c, LaunchTask)}

    def _close(self, run: RunId, at: float, *, lost: bool) -> None:
        launch = self._launched.pop(run)
        since = self._since.pop(run, at)
        self.held += (
            HeldInterval(job=run.job, node=launch.node, gpu=gpu, start_s=since, end_s=at, lost=lost)
            for gpu in launch.gpus
        )


def measure_run(what: FlowRun, known: Policies) -> Measured:
    """Execute a run of the plan and return its figures."""
    policy = policy_of(what.policy, known)
    return measure(simulation_of(what, SimulatorConstants()), policy, drawn=what.drawn)
