"""Runs that communicate, in virtual time: timelines by hand.

Two racks of two nodes with one GPU each. Each node's link carries 10 bytes per second, each rack's
20. A ring of two tasks sends its bytes once each way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from headgate.engine import Engine, drive
from headgate.model import Bandwidth, Communication, Gpu, Job, Node, Pattern, Queue, Task
from headgate.model.topology import ClusterTree
from headgate.planning.links.fluid_network import FluidNetwork
from headgate.policies.ordered.fifo import FirstInFirstOut
from headgate.protocol import (
    BandwidthMeasured,
    Event,
    JobCancelled,
    LaunchTask,
    NodeJoined,
    NodeLost,
    QueueChanged,
    TopologyChanged,
)
from headgate.sim.run import Outcome, Simulation, run
from headgate.sim.world import SimulatedWorld
from headgate.spec import Links
from headgate.state import JobState

NODES = tuple(
    Node(id=name, rack=name[0], gpus=(Gpu(memory_bytes=10),)) for name in ("a1", "a2", "b1", "b2")
)
TREE = ClusterTree(
    level_names=("core", "rack", "node"),
    names=("core", "a", "b", "a1", "a2", "b1", "b2"),
    parents=(-1, 0, 0, 1, 1, 2, 2),
    levels=(0, 1, 1, 2, 2, 2, 2),
    bytes_per_s=(float("inf"), 20.0, 20.0, 10.0, 10.0, 10.0, 10.0),
)
RING = Communication(pattern=Pattern.RING, bytes_per_step=10, step_s=1.0)  # 1 s and 1 s alone


def gang(
    name: str, compute_s: float = 60.0, *, communication: Communication | None = RING, **more: float
) -> Job:
    """Return a gang of two tasks on one GPU each, on any nodes."""
    task = Task(compute_s=compute_s, checkpoint_s=more.pop("checkpoint_s", 0.0))
    return Job(
        id=name, name=name, user="ada", queue="default", tasks=(task, task), gang=True,
        communication=communication, time_limit_s=more.pop("time_limit_s", None),
    )  # fmt: skip


def filler(name: str, compute_s: float) -> Job:
    """Return a job of one task, which takes the first free GPU."""
    task = Task(compute_s=compute_s)
    return Job(id=name, name=name, user="ada", queue="default", tasks=(task,))


class Ends:
    """When each job's last run ended, by job."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}
        self.launched: dict[str, list[tuple[float, str]]] = {}

    def __call__(self, batch: tuple[Event, ...], commands: object) -> None:
        for event in batch:
            if type(event).__name__ in ("TaskFinished", "TaskFailed", "TaskStopped"):
                self.at[event.run.job] = event.at  # type: ignore[attr-defined]
        for command in commands:  # type: ignore[attr-defined]
            for launch in getattr(command, "members", (command,)):
                if isinstance(launch, LaunchTask):
                    line = (batch[-1].at, launch.node)
                    self.launched.setdefault(launch.run.job, []).append(line)


def play(
    *submissions: tuple[float, Job],
    faults: tuple[Event, ...] = (),
    topology: ClusterTree | None = TREE,
    fails_after_s: Callable[[LaunchTask], float | None] = lambda launch: None,
) -> tuple[Ends, SimulatedWorld, Engine]:
    facts: list[Event] = [
        QueueChanged(at=0.0, queue=Queue(name="default")),
        BandwidthMeasured(
            at=0.0,
            bandwidth=Bandwidth(disk_bytes_per_s=100, rack_bytes_per_s=10, cluster_bytes_per_s=5),
        ),
        *(NodeJoined(at=0.0, node=node) for node in NODES),
        TopologyChanged(at=0.0, topology=topology),
        *faults,
    ]
    network = FluidNetwork(
        {}, disk_bytes_per_s=100, node_link_bytes_per_s=60,
        rack_uplink_bytes_per_s=90, aggregation_bytes_per_s=None,
    )  # fmt: skip
    world = SimulatedWorld(
        facts, submissions=submissions, network=network, policy=FirstInFirstOut(),
        fails_after_s=fails_after_s,
    )  # fmt: skip
    engine, ends = Engine(), Ends()
    drive(engine, world, observe=(ends,))
    return ends, world, engine


def test_gang_alone_in_its_best_set_takes_the_time_of_its_tasks() -> None:
    ends, world, _ = play((0.0, gang("j")))
    assert ends.at == {"j": 60.0}
    assert world.communicating.times.figures()["slowdown"] == {"mean": 1.0, "p95": 1.0}


def test_gang_spread_over_slow_links_takes_longer() -> None:
    # a1 and a2 are taken first: the gang gets b1 and b2
    narrow = replace(TREE, bytes_per_s=(float("inf"), 20.0, 20.0, 10.0, 10.0, 5.0, 5.0))
    ends, _, _ = play((0.0, filler("x", 99)), (0.0, filler("y", 99)), (0.0, gang("j")),
                      topology=narrow)  # fmt: skip
    # 10 bytes at 5 per second: steps of 3 s instead of 2
    assert ends.at["j"] == pytest.approx(90.0)


def test_gangs_that_share_links_slow_each_other_while_both_run() -> None:
    # x takes a1, the first gang a2 and b1 through both racks; then x2 takes nothing: b2 is free
    # with racks of 10 bytes per second, shared by two gangs across them
    shared = replace(TREE, bytes_per_s=(float("inf"), 10.0, 10.0, 50.0, 50.0, 50.0, 50.0))
    across = Communication(pattern=Pattern.RING, bytes_per_step=10, step_s=1.0)
    order = [(0.0, filler("x", 10)), (0.0, gang("j", communication=across))]
    ends, world, _ = play(*order, (20.0, gang("k", 20.0, communication=across)), topology=shared)
    # j on a2 and b1: steps of 2 s, of 1.2 s in one rack; k from 20 s on a1 and b2
    assert [node for _, node in ends.launched["j"]] == ["a2", "b1"]
    assert [node for _, node in ends.launched["k"]] == ["a1", "b2"]
    slow = 2 / 1.2
    golden = (3 + 5**0.5) / 2  # seconds of a step of each while both send
    both = golden / 1.2
    k_end = 20 + 20 * both
    done = 20 / slow + 20  # of j, when k has ended
    assert ends.at["k"] == pytest.approx(k_end)
    assert ends.at["j"] == pytest.approx(k_end + (60 - done) * slow)
    figures = world.communicating.figures(world.now(), ends.at["j"])
    assert figures["shared_links"] == 4, "up and down of both racks"
    assert figures["mean_diameter"] == 6, "GPU, node, rack, and down again"
    rows = {row["link"]: row for row in figures["links"]}
    assert rows["a -> core"]["jobs"] == ["j", "k"]
    assert rows["a -> core"]["shared_s"] == pytest.approx(k_end - 20)
    # j makes 50 steps of 1.2 s in its best set, k 20 / 1.2
    assert rows["a -> core"]["load_bytes_per_s"] == pytest.approx(10 * 80 / 1.2 / ends.at["j"])
    mean = (ends.at["j"] / 60 + both) / 2
    assert figures["slowdown"]["mean"] == pytest.approx(mean)


def test_gang_is_as_fast_as_alone_once_its_neighbour_is_stopped() -> None:
    shared = replace(TREE, bytes_per_s=(float("inf"), 10.0, 10.0, 50.0, 50.0, 50.0, 50.0))
    across = Communication(pattern=Pattern.RING, bytes_per_step=10, step_s=1.0)
    ends, world, _ = play(
        (0.0, filler("x", 10)), (0.0, gang("j", communication=across)),
        (20.0, gang("k", 20.0, communication=across)),
        faults=(JobCancelled(at=30.0, job="j", by="ada"),), topology=shared,
    )  # fmt: skip
    both, alone = (3 + 5**0.5) / 2 / 1.2, 2 / 1.2  # seconds for one of work, as above
    assert ends.at["j"] == 30.0
    assert ends.at["k"] == pytest.approx(30 + (20 - 10 / both) * alone)
    rows = {row["link"]: row for row in world.communicating.figures(world.now(), 0)["links"]}
    assert rows["a -> core"]["shared_s"] == pytest.approx(10.0)


def test_run_that_is_not_a_gangs_member_communicates_among_its_own_gpus() -> None:
    job = Job(
        id="j", name="j", user="ada", queue="default",
        tasks=(Task(compute_s=10.0),), communication=RING,
    )  # fmt: skip
    ends, world, _ = play((0.0, job))
    assert ends.at == {"j": 10.0}
    assert world.communicating.use.rows == {}


def test_time_limit_counts_the_time_that_passes() -> None:
    narrow = replace(TREE, bytes_per_s=(float("inf"), 20.0, 20.0, 10.0, 10.0, 5.0, 5.0))
    fill = [(0.0, filler("x", 200)), (0.0, filler("y", 200))]
    ends, _, engine = play(*fill, (0.0, gang("j", time_limit_s=80.0)), topology=narrow)
    assert ends.at["j"] == 80.0, "it would take 90 s there"
    assert engine.state.jobs.state[engine.state.names.job_rows["j"]] == JobState.FAILED


def test_program_fails_after_its_time_at_full_speed() -> None:
    narrow = replace(TREE, bytes_per_s=(float("inf"), 20.0, 20.0, 10.0, 10.0, 5.0, 5.0))
    fill = [(0.0, filler("x", 200)), (0.0, filler("y", 200))]
    first = lambda launch: 20.0 if launch.run == ("j", 0, 1) else None  # noqa: E731
    ends, _, _ = play(*fill, (0.0, gang("j")), topology=narrow, fails_after_s=first)
    # 20 s of work take 30 s; then all of it, from the beginning, 90 s
    assert ends.launched["j"][2][0] == pytest.approx(30.0)
    assert ends.at["j"] == pytest.approx(30.0 + 90.0)


def test_lost_gang_continues_from_the_work_that_its_checkpoints_hold() -> None:
    narrow = replace(TREE, bytes_per_s=(float("inf"), 20.0, 20.0, 10.0, 10.0, 5.0, 5.0))
    ends, _, _ = play(
        (0.0, filler("x", 40)), (0.0, filler("y", 40)), (0.0, gang("j", checkpoint_s=10.0)),
        faults=(NodeLost(at=50.0, node="b1"),), topology=narrow,
    )  # fmt: skip
    # in 50 s at slowdown 1.5 it has done 33.3 s of work, of which 30 are saved
    assert [node for _, node in ends.launched["j"][2:]] == ["a1", "a2"]
    assert ends.at["j"] == pytest.approx(50.0 + 30.0)


def test_topology_that_changes_while_a_gang_runs_applies_to_its_rest() -> None:
    narrow = replace(TREE, bytes_per_s=(float("inf"), 20.0, 20.0, 5.0, 5.0, 5.0, 10.0))
    ends, _, _ = play(
        (0.0, gang("j")), (30.0, gang("k", 1.0)),
        faults=(TopologyChanged(at=30.0, topology=narrow),),
    )  # fmt: skip
    # from 30 s on its steps take 3 s on any two nodes: that is its best set now
    assert ends.at["j"] == pytest.approx(60.0)


def simulated(jobs: list[tuple[float, Job]]) -> Outcome:
    simulation = Simulation(
        nodes=NODES,
        links=Links(disk_bytes_per_s=100, node_link_bytes_per_s=60, rack_uplink_bytes_per_s=90),
        queues=(Queue(name="default"),),
        bandwidth=Bandwidth(disk_bytes_per_s=100, rack_bytes_per_s=10, cluster_bytes_per_s=5),
        submissions=tuple(jobs),
    )
    return run(simulation, FirstInFirstOut())


def test_figures_of_a_run_without_communication_are_empty_but_for_diameters() -> None:
    figures = simulated([(0.0, gang("j", communication=None))]).figures
    assert figures["mean_diameter"] == 4, "a1 and a2: GPU, node, rack, and down again"
    assert figures["slowdown"] == {"mean": None, "p95": None}
    assert (figures["shared_links"], figures["links"]) == (0, [])


def test_same_simulation_gives_the_same_figures() -> None:
    jobs = [(float(n), gang(f"j{n}", 7.0 + n % 3)) for n in range(30)]
    jobs += [(n + 0.5, filler(f"f{n}", 3.0 + n % 2)) for n in range(30)]
    jobs.sort(key=lambda pair: pair[0])
    first, second = simulated(jobs), simulated(jobs)
    assert first.figures == second.figures
    assert first.figures["jobs_finished"] == 60
    assert first.figures["slowdown"]["mean"] > 1


@pytest.mark.parametrize("seed", range(12))
def test_every_finished_run_has_done_the_work_of_its_task(seed: int) -> None:
    random = Random(seed)
    jobs: list[tuple[float, Job]] = []
    for number in range(25):
        at = random.choice([0.0, 1.0, 2.5, 20.0]) * number
        compute_s = random.choice([3.0, 10.0, 30.0])
        pattern = random.choice([*Pattern])
        declared = Communication(
            pattern=pattern, bytes_per_step=random.choice([1, 10, 90]), step_s=1.0
        )
        jobs.append((at, gang(f"j{number}", compute_s, communication=declared)))
        jobs.append((at, filler(f"f{number}", random.choice([1.0, 7.0]))))
    jobs.sort(key=lambda pair: pair[0])
    faults = (NodeLost(at=40.0, node="b1"), NodeJoined(at=55.0, node=NODES[2]))
    ends, world, engine = play(*jobs, faults=faults)
    done_s = {job: best for job, (_, best) in world.communicating.times.by_job.items()}
    for at, job in jobs:
        assert engine.state.jobs.state[engine.state.names.job_rows[job.id]] == JobState.FINISHED
        launches = len(ends.launched[job.id]) / len(job.tasks)
        if job.id in done_s and launches == 1:
            assert done_s[job.id] == pytest.approx(job.tasks[0].compute_s)
            assert ends.at[job.id] - at >= job.tasks[0].compute_s - 1e-9
        elif job.id in done_s:
            assert done_s[job.id] >= job.tasks[0].compute_s - 1e-9, "some of it was lost"
