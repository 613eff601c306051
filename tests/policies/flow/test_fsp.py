"""The policy `fsp` on an engine: which runs it preempts, for which jobs, and when it does not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases
from tests.policies.flow.bench import GB, Bench, priced, submitted

from headgate.base.rng import Random, stream
from headgate.model import Demand, Task
from headgate.planning.shares.fair_shares import fair_shares
from headgate.planning.shares.standing import standing_of
from headgate.policies.flow import FlowSharing, PreemptiveFlowSharing
from headgate.protocol import JobSubmitted, Plan
from headgate.protocol.reasons import BelowShare, NoFreeGpu, ShareLimit
from headgate.state import Snapshot, TaskState


def bench(slack: float = 0.25) -> Bench:
    return Bench(PreemptiveFlowSharing(slack=slack))


def test_a_second_job_has_its_share_after_one_round_trip() -> None:
    stage = bench()
    stage.node("n", "r", 10, 10, 10, 10)
    stage.apply(submitted("early", 20))
    stage.finish("early", 0)  # at 1 s, so its successor is the youngest run
    stage.at = 5.0
    stage.apply(submitted("late", 20))
    assert stage.reason("late") == BelowShare(
        running_gpus=0, share_gpus=2, ahead="early", ahead_over_gpus=2
    )
    assert stage.stop() == ["early/4", "early/3"]  # the least run, then the last of equals
    assert (stage.running("early"), stage.running("late")) == ([1, 2], [0, 1])
    assert stage.stops == []
    lost = stage.engine.state.jobs.lost_gpu_s
    assert [lost[0], lost[1]] == [(5 - 1) + 5, 0]
    assert stage.reason("late") == ShareLimit(running_gpus=2, share_gpus=2, ahead="early")


def one_above(slack: float) -> Bench:
    """Eight GPUs, shares of four: `wide` holds five since `narrow` had only three tasks ready."""
    stage = bench(slack)
    stage.node("n", "r", *[10] * 8)
    narrow = [Task()] * 3 + [Task(after=(0,))] * 5
    stage.apply(submitted("narrow", narrow), submitted("wide", 20))
    assert (len(stage.running("narrow")), len(stage.running("wide"))) == (3, 5)
    stage.finish("narrow", 0)
    assert stage.running("narrow") == [1, 2, 3]
    return stage


def test_a_job_within_the_slack_is_not_preempted() -> None:
    assert one_above(slack=0.25).stops == []  # 5 is not more than 1.25 x 4
    stage = one_above(slack=0.24)
    assert stage.stop() == ["wide/4"]
    assert (len(stage.running("narrow")), len(stage.running("wide"))) == (4, 4)
    stage = one_above(slack=0.0)
    assert stage.stop() == ["wide/4"]
    assert stage.stops == []


def test_gpus_being_freed_are_not_preempted_for_twice() -> None:
    stage = bench()
    stage.node("n", "r", 10, 10, 10, 10)
    stage.apply(submitted("early", 20))
    stage.apply(submitted("late", 20))
    assert len(stage.stops) == 2
    stage.finish("early", 0)  # which late takes
    assert (stage.running("late"), len(stage.stops)) == ([0], 2)
    assert stage.stop(1) == ["early/3"]
    assert (stage.running("late"), len(stage.stops)) == ([0, 1], 1)
    assert stage.stop() == ["early/2"]  # one more than was needed in the end: it starts again
    assert (stage.running("early"), stage.running("late"), stage.stops) == ([1, 2], [0, 1], [])


def test_no_more_runs_are_preempted_than_tasks_can_use() -> None:
    stage = bench()
    stage.node("n", "r", *[10] * 10)
    stage.apply(submitted("early", 20))
    stage.apply(submitted("late", [Task()] * 2 + [Task(after=(0, 1))] * 9))
    stage.queue("default")  # another round, while they are being stopped
    assert len(stage.stops) == 2
    assert stage.stop() == ["early/9", "early/8"]
    assert (stage.running("late"), stage.stops) == ([0, 1], [])


def test_free_gpus_are_used_before_any_run_is_preempted() -> None:
    stage = bench()
    stage.node("n", "r", *[10] * 6)
    stage.apply(submitted("early", 4))
    stage.apply(submitted("late", 2))
    assert (stage.running("late"), stage.stops) == ([0, 1], [])


def test_gpus_won_in_the_round_count_before_runs_are_preempted() -> None:
    stage = bench()
    stage.node("n", "r", *[10] * 9)
    narrow = [Task()] + [Task(after=(0,))] * 8
    stage.apply(submitted("narrow", narrow), submitted("early", 6))
    stage.apply(submitted("late", 9))  # shares are 3; two GPUs are free, narrow can use no more
    assert (stage.running("late"), len(stage.stops)) == ([0, 1], 1)


def test_a_job_within_the_slack_loses_nothing_beside_one_that_does() -> None:
    stage = bench()
    stage.node("n", "r", *[10] * 12)
    stage.apply(submitted("large", 20), submitted("five", 5))
    assert (len(stage.running("large")), len(stage.running("five"))) == (7, 5)
    stage.apply(submitted("late", 20))  # shares are 4; 7 is more than 1.25 x 4, and 5 is not
    assert stage.stop() == ["large/6", "large/5", "large/4"]
    assert [len(stage.running(j)) for j in ("large", "five", "late")] == [4, 5, 3]
    assert stage.stops == []


def test_runs_being_stopped_do_not_count_as_held() -> None:
    stage = bench()
    stage.node("n", "r", *[10] * 10)
    stage.apply(submitted("early", 20))
    stage.apply(submitted("second", 20))
    assert len(stage.stops) == 5
    stage.apply(submitted("third", 20))  # shares are 4, 3, 3; early will hold 5 in any case
    assert len(stage.stops) == 5
    stage.stop()
    assert [len(stage.running(j)) for j in ("early", "second", "third")] == [5, 3, 2]


def test_a_job_keeps_its_last_run_whatever_its_share() -> None:
    stage = bench()
    stage.node("n", "r", 10, 10)
    stage.apply(submitted("low", 9, user="ann"))
    stage.apply(submitted("high", 9, user="ann", priority=1))
    assert stage.stop() == ["low/1"]
    assert (stage.running("low"), stage.running("high"), stage.stops) == ([0], [0], [])
    assert stage.reason("high") == BelowShare(
        running_gpus=1, share_gpus=2, ahead="low", ahead_over_gpus=1
    )


def test_only_gpus_that_are_large_enough_are_taken() -> None:
    stage = bench()
    stage.node("big", "r", 80)
    stage.node("small", "r", 10, 10, 10)
    stage.apply(submitted("early", 20))
    stage.apply(submitted("needy", [Task(demand=Demand(gpus=1, gpu_memory_bytes=40 * GB))] * 4))
    (stopped,) = stage.stop()
    assert stopped.startswith("early/")
    assert stage.where()["needy/0"] == "big"
    assert len(stage.running("early")) == 3
    assert stage.stops == []


def test_a_queue_at_its_ceiling_makes_room_among_its_own_jobs() -> None:
    stage = bench()
    stage.queue("small", max_gpus=2)
    stage.node("n", "r", 10, 10, 10, 10)
    stage.apply(submitted("other", 9), submitted("first", 9, queue="small"))
    assert (len(stage.running("other")), len(stage.running("first"))) == (2, 2)
    stage.apply(submitted("second", 9, queue="small"))
    assert stage.stop() == ["first/1"]
    assert [len(stage.running(j)) for j in ("other", "first", "second")] == [2, 1, 1]
    assert stage.stops == []


def test_shares_decide_not_the_distance() -> None:
    """Where `fs` lets prices choose among those below their share, `fsp` allocates by shares."""
    stage = bench()
    stage.node("near", "r", 10)
    stage.data("d", GB, "near")
    stage.apply(submitted("far", 1), submitted("local", [Task(reads=("d",))]))
    assert stage.where() == {"far/0": "near"}


def test_a_job_alone_waits_for_free_gpus() -> None:
    stage = bench()
    stage.node("n", "r", 10)
    stage.apply(submitted("alone", 3))
    assert stage.reason("alone") == NoFreeGpu(free_gpus=0, needed_gpus=1, total_gpus=1)


@settings(max_examples=cases(40))
@given(st.data())
def test_a_single_job_gets_the_same_from_an_fs_that_never_waits(data: st.DataObject) -> None:
    stage = Bench(Compared())
    nodes = [f"n{i}" for i in range(data.draw(st.integers(1, 5)))]
    for name in nodes:
        gpus = data.draw(st.lists(st.sampled_from([10, 40]), max_size=2))
        stage.node(name, data.draw(st.sampled_from("rs")), *gpus)
    for i in range(5):
        holders = data.draw(st.lists(st.sampled_from(nodes), max_size=3, unique=True))
        stage.data(f"d{i}", GB, *holders)
    task = st.builds(
        lambda shard, need: Task(reads=(shard,), demand=Demand(gpus=1, gpu_memory_bytes=need * GB)),
        st.sampled_from([f"d{i}" for i in range(5)]),
        st.sampled_from([0, 0, 20]),
    )
    stage.apply(submitted("alone", data.draw(st.lists(task, min_size=1, max_size=12))))
    while stage.runs:
        stage.finish(*sorted(stage.runs)[data.draw(st.integers(0, len(stage.runs) - 1))])


class Compared:
    """Decides as `fs` does, and checks that `fsp` would place as many at the same price."""

    name = "fs"

    def __init__(self) -> None:
        self._fs = FlowSharing(alpha1=1.5, alpha2=2.0, alpha3=2.0)
        self._fsp = PreemptiveFlowSharing()
        self.refuses = self._fs.refuses

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        plan, other = self._fs.decide(snapshot, rng), self._fsp.decide(snapshot, rng)
        assert not other.stops
        assert priced(snapshot, other) == pytest.approx(priced(snapshot, plan))
        return plan


def could_help(stage: Bench) -> list[tuple[int, int]]:
    """Every pair of a job above its share and a task, of one below, that fits one of its GPUs."""
    snapshot = stage.engine.snapshot()
    standing = standing_of(snapshot)
    target = fair_shares(standing.hierarchy, unfinished=standing.unfinished, gpus=standing.gpus)
    full = np.bincount(standing.queue, standing.held, len(standing.tree.most)) >= standing.tree.most
    found = []
    for above in np.flatnonzero((standing.held > target) & (standing.held > 1)).tolist():
        runs = [t for t in snapshot.tasks_of(int(standing.jobs[above])) if snapshot.held_gpus(t)]
        sizes = [
            snapshot.gpu_memory_bytes_of(snapshot.tasks.node[t])[snapshot.held_gpus(t)[0]]
            for t in runs
            if snapshot.tasks.gpus[t]
        ]
        for below in np.flatnonzero(standing.held < target).tolist():
            if full[standing.queue[below]] and standing.queue[below] != standing.queue[above]:
                continue
            for task in snapshot.waiting_of(int(standing.jobs[below])).tolist():
                need = snapshot.tasks.memory_bytes[task]
                if snapshot.tasks.gpus[task] and max(sizes) >= need:
                    found.append((int(standing.jobs[above]), task))
    return found


@pytest.mark.parametrize("slack", [0.0, 0.25])
def test_shares_are_reached_and_jobs_end_in_any_order_of_ends_and_stops(slack: float) -> None:
    """Jobs come one by one; without slack, after all stops no run could help another job."""
    stopped = 0
    for seed in range(cases(8)):
        rng = stream(seed, "fsp")
        stage = bench(slack)
        arrivals = small_world(stage, rng)
        stops = 0
        while stage.runs or arrivals:
            while stage.stops and rng.random() < 0.7:
                stage.stop(1)
                stops += 1
                assert stops < 300, f"preemption does not terminate: {seed}"
            stage.queue("default")  # nothing has changed, and yet another round
            if not stage.stops and not slack:
                assert could_help(stage) == [], seed
            going = [run for run in sorted(stage.runs) if not stopping(stage, *run)]
            if arrivals and (not going or rng.random() < 0.4):
                stage.apply(arrivals.pop(0))
            elif going:
                stage.finish(*rng.choice(going))
        assert stage.engine.state.waiting_tasks == 0, seed
        assert not stage.engine.state.jobs.unfinished.array().any(), seed
        stopped += stops
    assert stopped > 8


def small_world(stage: Bench, rng: Random) -> list[JobSubmitted]:
    """A cluster of mixed GPUs, one queue with a ceiling, and jobs that are to arrive."""
    stage.queue("capped", rng.choice((0.5, 2.0)), rng.randint(1, 5))
    for number in range(rng.randint(1, 4)):
        stage.node(f"n{number}", rng.choice("rs"), *rng.choices((10, 40), k=rng.randint(0, 4)))
    stage.node("last", "r", 40)
    for number in range(4):
        stage.data(f"d{number}", rng.choice((1, GB)), "last", "n0")

    def task(ordinal: int) -> Task:
        return Task(
            reads=tuple(rng.sample(("d0", "d1", "d2", "d3"), rng.randint(0, 2))),
            after=(rng.randrange(ordinal),) if ordinal and rng.random() < 0.2 else (),
            demand=Demand.of(
                gpus=rng.choice((1, 1, 1, 1, 0)), gpu_memory_bytes=rng.choice((0, 0, 20 * GB))
            ),
        )

    return [
        submitted(
            f"j{number}",
            [task(ordinal) for ordinal in range(rng.randint(1, 12))],
            user=rng.choice("xyz"),
            queue=rng.choice(("default", "default", "capped")),
            priority=rng.choice((0, 0, 1)),
        )
        for number in range(rng.randint(2, 6))
    ]


def stopping(stage: Bench, job: str, ordinal: int) -> bool:
    state = stage.engine.state
    row = state.jobs.first_task[state.names.job_rows[job]] + ordinal
    return bool(state.tasks.state[row] == TaskState.STOPPING)
