"""Runs of the flow paper's experiments: the figures of each, and several in processes."""

from __future__ import annotations

import itertools
import multiprocessing
import pickle

import pytest

from headgate.app import POLICIES
from headgate.base.errors import InvariantBroken, SpecError
from headgate.experiments.flow.jobs import GB, MB, SimulatorConstants
from headgate.experiments.flow.runs import (
    FlowRun,
    HeldInterval,
    Setup,
    Span,
    choose,
    measure,
    measure_run,
    plan,
    policy_of,
    simulation_of,
)
from headgate.experiments.frame.pool import run_all
from headgate.model import Demand, Gpu, Job, Node, Queue, Shard, Task
from headgate.ports import make_policy
from headgate.sim.run import Simulation
from headgate.spec import Links


def run_of(setup: Setup, policy: str, *, parallel: int = 6, drawn: bool = False) -> FlowRun:
    return FlowRun(
        setup=setup, network="constrained", policy=policy, seed=1, parallel=parallel, drawn=drawn
    )


def one_gpu(*jobs: Job, submit_s: float = 0.0) -> Simulation:
    """Return a node with one GPU that holds all shards: a GB is read in 10 s."""
    node = Node(id="n", rack="r", gpus=(Gpu(memory_bytes=GB),))
    links = Links(disk_bytes_per_s=100 * MB, node_link_bytes_per_s=GB, rack_uplink_bytes_per_s=GB)
    return Simulation(
        nodes=(node,),
        links=links,
        queues=(Queue(name="default"),),
        replicas=tuple((shard, "n") for job in jobs for shard in job.shards),
        submissions=tuple((submit_s, job) for job in jobs),
    )


def reader(name: str, count: int) -> Job:
    shards = tuple(Shard(id=f"{name}/{i}", size_bytes=GB) for i in range(count))
    tasks = tuple(Task(reads=(shard.id,), compute_s=5.0) for shard in shards)
    return Job(id=name, name=name, user="u", queue="default", tasks=tasks, shards=shards)


def test_figures_of_a_run_equal_those_computed_by_hand() -> None:
    simulation = one_gpu(reader("a", 2), submit_s=3.0)

    made = measure(simulation, policy_of("gs", POLICIES), drawn=True)

    assert made.makespan_s == 30.0  # two tasks, each 10 s of reading and 5 s of computing
    assert made.spans == (Span(job="a", start_s=3.0, end_s=33.0),)
    assert made.read_bytes == (2 * GB, 0, 0)
    assert made.lost_gpu_s == 0.0
    assert made.held == tuple(
        HeldInterval(job="a", node="n", gpu=0, start_s=start, end_s=start + 15.0, lost=False)
        for start in (3.0, 18.0)
    )


def test_run_with_a_job_that_cannot_finish_raises() -> None:
    huge = Job(
        id="a",
        name="a",
        user="u",
        queue="default",
        tasks=(Task(demand=Demand(gpus=1, gpu_memory_bytes=2 * GB)),),
    )

    with pytest.raises(InvariantBroken, match="0 of 1 jobs finished"):
        measure(one_gpu(huge), policy_of("gs", POLICIES))


@pytest.mark.usefixtures("few_jobs")
def test_recorded_intervals_agree_with_the_figures() -> None:
    made = measure(
        simulation_of(run_of(Setup.PARALLEL, "fsp"), SimulatorConstants()),
        policy_of("fsp", POLICIES),
        drawn=True,
    )

    by_gpu: dict[tuple[str, int], list[HeldInterval]] = {}
    for one in made.held:
        by_gpu.setdefault((one.node, one.gpu), []).append(one)
    for held in by_gpu.values():
        held.sort(key=lambda one: one.start_s)
        assert all(a.end_s <= b.start_s for a, b in itertools.pairwise(held))
    lost_s = sum(one.end_s - one.start_s for one in made.held if one.lost)
    assert lost_s == pytest.approx(made.lost_gpu_s)
    assert lost_s > 0
    assert max(one.end_s for one in made.held) <= made.makespan_s
    for span in made.spans:
        starts = [one.start_s for one in made.held if one.job == span.job]
        assert min(starts) == span.start_s


def test_share_is_the_cluster_divided_by_the_parallel_jobs() -> None:
    def most(setup: Setup, parallel: int) -> int | None:
        (queue,) = simulation_of(
            run_of(setup, "gs", parallel=parallel), SimulatorConstants()
        ).queues
        assert queue.max_jobs_in_flight == 1
        return queue.max_gpus

    assert most(Setup.TURN_SHARE, 6) == 5
    assert most(Setup.TURN_SHARE, 7) == 4
    assert most(Setup.TURN_SHARE, 36) == 1
    assert most(Setup.USERS_SHARE, 6) == 3
    assert most(Setup.TURN, 6) is None


def test_every_run_has_its_ideals_among_the_runs() -> None:
    runs = plan(tuple(POLICIES), (1, 2), 6)

    assert len(set(runs)) == len(runs)
    made = {(run.setup, run.network, run.policy, run.seed) for run in runs}
    ideals = {
        Setup.PARALLEL: (Setup.TURN, Setup.TURN_SHARE),
        Setup.SUPPLEMENT: (Setup.TURN, Setup.TURN_SHARE),
        Setup.USERS: (Setup.TURN, Setup.USERS_SHARE),
    }
    for run in runs:
        for setup in ideals.get(run.setup, ()):
            assert (setup, run.network, run.policy, run.seed) in made
    assert {run.seed for run in runs if run.drawn} == {1}


@pytest.mark.parametrize("policy", ["gsp", "fsp"])
def test_policies_of_the_paper_have_no_hysteresis(policy: str) -> None:
    assert policy_of(policy, POLICIES)._slack == 0.0  # type: ignore[attr-defined]
    assert make_policy(POLICIES, policy)._slack > 0.0  # type: ignore[attr-defined]


def test_choose_rejects_all_unknown_policies_with_hints() -> None:
    assert choose(POLICIES, ["fsp", "gs", "fsp"]) == ("fsp", "gs")
    assert set(choose(POLICIES, None)) >= {"gs", "gsp", "gsd", "fs", "fsp", "fsu", "fair"}
    with pytest.raises(SpecError) as caught:
        choose(POLICIES, ["fs", "fps", "nothing"])
    assert caught.value.problems[0].hint == "did you mean 'fs'?"
    assert len(caught.value.problems) == 2


# --- in processes --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", POLICIES)
def test_policy_can_be_sent_to_another_process(name: str) -> None:
    info = pickle.loads(pickle.dumps(POLICIES[name]))

    assert (info.name, info.parameters) == (name, POLICIES[name].parameters)
    assert info.make().name == POLICIES[name].make().name == name


def test_runs_in_processes_equal_runs_in_this_process() -> None:
    runs = (
        run_of(Setup.PARALLEL, "fsu", drawn=True),
        run_of(Setup.TURN, "gs"),
    )
    ended: list[FlowRun] = []

    here = run_all(runs, measure_run, dict(POLICIES), workers=1)
    there = run_all(runs, measure_run, dict(POLICIES), workers=2, step=ended.append)

    assert list(there.items()) == list(here.items())
    assert sorted(ended, key=runs.index) == list(runs)


def test_error_in_a_worker_process_is_raised_and_ends_the_other_processes() -> None:
    wrong = FlowRun(setup=Setup.TURN, network="nowhere", policy="gs", seed=1, parallel=6)

    with pytest.raises(KeyError, match="nowhere"):
        run_all((wrong, run_of(Setup.PARALLEL, "fs")), measure_run, dict(POLICIES), workers=2)

    assert multiprocessing.active_children() == []
