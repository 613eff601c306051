"""The policy `headgate` on an engine: placement, order of jobs, and preemption."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.policies.flow.bench import GB, Bench, submitted

from headgate.model import Demand, Task
from headgate.planning.shares.debts import debts_gpu_s
from headgate.planning.shares.standing import standing_of
from headgate.policies.flow import TimelyFlow
from headgate.protocol import Event, JobSubmitted, TaskStarted, TimerFired, WakeAt
from headgate.protocol.reasons import (
    GpuMemory,
    NoFreeGpu,
    NothingFits,
    QueueLimit,
    ShareLimit,
    WaitsForLocality,
)


class Stage(Bench):
    """A bench whose clock wakes the policy as it asked, and whose runs take the time they take."""

    def __init__(self, *, memory_s: float = 600.0, slack: float = 0.25) -> None:
        self.memory_s = memory_s
        super().__init__(TimelyFlow(memory_s=memory_s, slack=slack))

    def apply(self, *events: Event) -> None:
        """Apply events; submissions have the current time."""
        standing = [replace(e, at=self.at) if isinstance(e, JobSubmitted) else e for e in events]
        super().apply(*standing)

    def wait(self, until: float, done: Callable[[], bool] = lambda: False) -> list[float]:
        """Advance the time, with only the rounds that plans request; return their times."""
        rounds = []
        while not done():
            timers = [
                c for c in self.engine.outstanding() if isinstance(c, WakeAt) and c.at <= until
            ]
            if not timers:
                self.at = until
                break
            (wake,) = timers
            self.at = max(self.at, wake.at)
            self.apply(TimerFired(at=self.at, timer=wake.timer))
            rounds.append(self.at)
            assert len(rounds) < 1000
        return rounds

    def ends(self, job: str, ordinal: int, *, after_s: float) -> None:
        """Start a run now and end it `after_s` later."""
        self.apply(TaskStarted(at=self.at, run=self.runs[job, ordinal].run))
        self.at += after_s - 1.0
        self.finish(job, ordinal)

    def learn(self, kind: str, compute_s: float, node: str, *tasks: Task) -> None:
        """Have a job of a kind run, one task after another, each on a node, and end."""
        job = f"first {kind}"
        self.apply(of_kind(kind, job, list(tasks)))
        for ordinal, task in enumerate(tasks):
            assert self.where() == {f"{job}/{ordinal}": node}
            read_s = self.engine.state.tasks.read_s[self.row(job, ordinal)]
            assert bool(read_s) == bool(task.reads)
            self.ends(job, ordinal, after_s=read_s + compute_s)

    def row(self, job: str, ordinal: int) -> int:
        state = self.engine.state
        return int(state.jobs.first_task[state.names.job_rows[job]]) + ordinal

    def owed(self, job: str) -> float:
        snapshot = self.engine.snapshot()
        standing = standing_of(snapshot)
        owed = debts_gpu_s(standing, memory_s=self.memory_s)
        return float(owed[standing.jobs.tolist().index(snapshot.names.job_rows[job])])

    def count(self, *jobs: str) -> list[int]:
        return [len(self.running(job)) for job in jobs]


def of_kind(kind: str, name: str, tasks: int | list[Task], **more: object) -> JobSubmitted:
    event = submitted(name, tasks, **more)  # type: ignore[arg-type]
    return replace(event, job=replace(event.job, runtime_class=kind))


# ------------------------------------------------------------------ waiting and moving, in seconds


def busy_near_the_data() -> Stage:
    """`d` is on the node `near`, whose GPU is taken for 101 s from now; `far`'s is free.

    A task that reads `d` takes 1 s for that on `near` and 50 s on `far`.
    """
    stage = Stage()
    stage.node("near", "r", 10)
    stage.data("d", GB, "near")
    stage.learn("long", 100.0, "near", Task(reads=("d",)))
    stage.apply(of_kind("long", "early", [Task(reads=("d",))]))
    stage.node("far", "s", 10)
    return stage


def test_a_task_waits_exactly_when_waiting_is_cheaper_than_moving() -> None:
    stage = busy_near_the_data()
    stage.at += 53.0
    stage.apply(submitted("new", [Task(reads=("d",))]))
    assert stage.running("new") == []  # 48 s until the GPU is free, and 1 s to read
    assert stage.reason("new") == WaitsForLocality(move_s=50.0, wait_s=pytest.approx(49.0))

    stage = busy_near_the_data()
    stage.at += 51.0
    stage.apply(submitted("new", [Task(reads=("d",))]))
    assert stage.where()["new/0"] == "far"  # 50 s, and 1 s to read


def test_a_waiting_task_gets_the_gpu_that_it_waited_for() -> None:
    stage = busy_near_the_data()
    stage.at += 60.0
    stage.apply(submitted("new", [Task(reads=("d",))]))
    stage.finish("early", 0)
    assert stage.where() == {"new/0": "near"}


def test_a_run_of_an_unknown_runtime_class_is_expected_to_compute_as_long_as_it_reads() -> None:
    stage = Stage()
    stage.node("near", "r", 10)
    stage.data("d", 40 * GB, "near")
    stage.apply(submitted("early", [Task(reads=("d",))]))  # 40 s of reading, and 40 s
    stage.node("far", "s", 10)
    stage.data("e", GB, "near")
    stage.at = 30.0
    stage.apply(submitted("new", [Task(reads=("e",))]))
    assert stage.where()["new/0"] == "far"  # 50 s + 1 s against 50 s
    stage.at = 32.0
    stage.apply(submitted("next", [Task(reads=("e",))]))
    stage.finish("new", 0)
    assert stage.reason("next") == WaitsForLocality(move_s=50.0, wait_s=pytest.approx(48.0))


def test_no_task_waits_for_an_overdue_run_without_limit() -> None:
    stage = busy_near_the_data()
    began = stage.at
    stage.at += 60.0
    stage.apply(submitted("new", [Task(reads=("d",))]))
    rounds = stage.wait(began + 1000.0, lambda: bool(stage.running("new")))
    assert stage.where()["new/0"] == "far"
    # From the expected end on it is asked again after as long as the run is overdue.
    assert [round(at - began) for at in rounds] == [101, 102, 103, 105, 109, 117, 133, 165]


def test_no_round_is_requested_when_no_gpu_is_free_and_no_job_is_short() -> None:
    stage = Stage()
    stage.node("n", "r", 10)
    stage.apply(submitted("alone", 3))
    assert stage.plans[-1].again_at is None


def test_a_gpu_that_is_free_is_as_near_as_one_that_is_about_to_be_free() -> None:
    stage = Stage()
    stage.node("one", "r", 10)
    stage.apply(submitted("first", 1))  # of its kind nothing is known: it might end now
    stage.node("two", "r", 80)
    stage.apply(submitted("second", 1))
    assert stage.where() == {"first/0": "one", "second/0": "two"}


# --------------------------------------------------------------------------------------- whose turn


def test_the_job_that_fair_sharing_would_end_first_goes_first() -> None:
    stage = Stage()
    stage.node("n", "r", 10, 10)
    stage.learn("k", 10.0, "n", Task())
    stage.apply(of_kind("k", "busy", 2))
    stage.apply(of_kind("k", "large", 9), of_kind("k", "small", 2))
    stage.ends("busy", 0, after_s=10.0)
    assert stage.count("large", "small") == [0, 1]
    stage.ends("busy", 1, after_s=1.0)
    assert stage.count("large", "small") == [0, 2]
    stage.ends("small", 0, after_s=9.0)
    assert stage.count("large", "small") == [1, 1]


def test_long_tasks_count_for_more_than_many() -> None:
    stage = Stage()
    stage.node("n", "r", 10, 10)
    stage.learn("long", 100.0, "n", Task())
    stage.learn("short", 10.0, "n", Task())
    stage.apply(of_kind("short", "busy", 2))
    stage.apply(of_kind("long", "few", 2), of_kind("short", "many", 9))
    stage.ends("busy", 0, after_s=10.0)
    assert stage.count("few", "many") == [0, 1]


def waited_s(stage: Stage, tasks: int) -> float:
    """How long a job of so many tasks of 10 s waits on two GPUs while small ones keep coming."""
    stage.node("n", "r", 10, 10)
    stage.learn("k", 10.0, "n", Task())
    stage.apply(of_kind("k", "small 0", 1), of_kind("k", "small 1", 1))
    stage.apply(of_kind("k", "large", tasks))
    began, came = stage.at, 2
    while not stage.running("large"):
        assert came < 40, "it is passed over without limit"
        stage.apply(of_kind("k", f"small {came}", 1))
        stage.ends(*next(iter(stage.runs)), after_s=5.0)  # the one that was launched first
        came += 1
    return stage.at - began


def test_a_large_job_runs_beside_a_stream_of_small_jobs() -> None:
    # 40 s of work against 10 s: it goes first once it has missed the difference, here 1 GPU.
    assert 30.0 <= waited_s(Stage(), tasks=4) <= 40.0


def test_a_job_without_gpus_goes_first_before_its_debt_decays() -> None:
    # 1000 s of work against 10 s, and never more than 60 s are owed: half of them after 42 s.
    assert 42.0 <= waited_s(Stage(memory_s=60.0), tasks=100) <= 50.0


def test_a_large_job_keeps_about_its_share_beside_a_stream_of_small_ones() -> None:
    stage = Stage(memory_s=20.0)
    stage.node("n", "r", *[10] * 8)
    stage.learn("k", 10.0, "n", Task())
    stage.apply(of_kind("k", "large", 200, user="ann"))
    held = []
    for number in range(120):
        stage.apply(of_kind("k", f"small {number}", 2, user="bob"))
        stage.stop()
        stage.ends(*next(iter(stage.runs)), after_s=1.25)  # the one that was launched first
        held += stage.count("large")
    # Its share is 4. It is short of it, but never for long: in the mean by less than half of it.
    assert sum(held[40:]) / len(held[40:]) > 2.4


# --------------------------------------------------------------------------- shares, kept over time


def test_debts_grow_with_missed_gpus_decay_and_change_sign_with_a_surplus() -> None:
    stage = Stage(memory_s=100.0, slack=9.0)
    stage.node("n", "r", *[10] * 4)
    stage.learn("k", 1000.0, "n", Task())
    began = stage.at
    stage.apply(of_kind("k", "early", 9))
    stage.apply(of_kind("k", "late", 9))
    assert (stage.owed("early"), stage.owed("late")) == (0.0, 0.0)
    assert stage.engine.state.memo("missing_gpus").tolist()[1:] == [-2, 2]
    stage.at = began + 50.0
    stage.apply(of_kind("k", "later", 9))
    # 2 GPUs missed for 50 s, of which the first seconds have begun to fade: 200 (1 - e^-1/2).
    assert stage.owed("late") == pytest.approx(200 * (1 - 0.6065307))
    assert stage.owed("early") == pytest.approx(-200 * (1 - 0.6065307))


def test_a_job_misses_no_gpu_that_it_cannot_use() -> None:
    stage = Stage()
    stage.node("n", "r", *[10] * 4)
    stage.apply(submitted("chain", [Task(), *[Task(after=(0,))] * 5]), submitted("other", 9))
    assert stage.count("chain", "other") == [1, 3]
    assert stage.engine.state.memo("missing_gpus").tolist() == [0, -1]


def test_a_single_job_gets_every_gpu() -> None:
    stage = Stage()
    stage.node("a", "r", 10, 10)
    stage.node("b", "s", 40, 10)
    stage.apply(submitted("alone", 9))
    assert stage.count("alone") == [4]
    assert stage.reason("alone") == NoFreeGpu(free_gpus=0, needed_gpus=1, total_gpus=4)
    stage.finish("alone", 0)
    assert stage.count("alone") == [4]


def test_queues_share_by_weight_and_users_equally() -> None:
    stage = Stage()
    stage.queue("heavy", 2.0)
    stage.node("n", "r", *[10] * 6)
    stage.apply(
        submitted("heavy", 9, queue="heavy"),
        submitted("ann one", 9, user="ann"),
        submitted("bob", 9, user="bob"),
    )
    assert stage.count("heavy", "ann one", "bob") == [4, 1, 1]
    other = Stage()
    other.node("n", "r", *[10] * 6)
    other.apply(
        submitted("one", 9, user="ann"),
        submitted("two", 9, user="ann", priority=1),
        submitted("bob", 9, user="bob"),
    )
    assert other.count("one", "two", "bob") == [0, 3, 3]
    assert other.reason("one") == ShareLimit(running_gpus=0, share_gpus=0, ahead="two")


def test_a_queue_at_its_ceiling_waits_for_its_own_runs_and_keeps_no_gpu_from_others() -> None:
    stage = Stage()
    stage.queue("capped", max_gpus=2)
    stage.node("n", "r", 10, 10)
    stage.node("m", "r")
    stage.data("d", GB, "n", "m")
    stage.apply(submitted("inside", [Task(reads=("d",))] * 9, queue="capped"))
    stage.at = 1000.0
    stage.node("m", "r", 10, 10)  # it has come back, and lies nearer to who may not have it
    stage.apply(submitted("outside", 9))
    assert stage.count("inside", "outside") == [2, 2]
    assert stage.reason("inside") == QueueLimit(queue="capped", used_gpus=2, max_gpus=2)
    stage.finish("inside", 0)
    assert sum(stage.count("inside", "outside")) == 4


# --------------------------------------------------------------------------------------- preemption


def taken(
    stage: Stage | None = None, *, ran_s: float = 10.0, compute_s: float = 1000.0, gpus: int = 4
) -> Stage:
    """All GPUs have been taken by `early` for so long, and are for a long time to come."""
    stage = stage or Stage()
    stage.node("n", "r", *[10] * gpus)
    stage.learn("long", compute_s, "n", Task())
    stage.apply(of_kind("long", "early", 20))
    stage.at += ran_s
    return stage


def test_a_run_is_preempted_once_the_debt_covers_its_price() -> None:
    stage = taken()
    came = stage.at
    stage.apply(submitted("late", 5))  # short of 2 GPUs: it is owed 2 GPU seconds more each second
    assert stage.stops == []
    rounds = stage.wait(came + 200.0, lambda: bool(stage.stops))
    # A run's price is the 10 s that it had run, and grows by 1 each second; and 1 s to start again.
    assert stage.at - came == pytest.approx(11.0, abs=1.5)
    assert len(rounds) < 5
    (stopped,) = stage.stop()
    assert stopped.startswith("early/")
    assert stage.count("early", "late") == [3, 1]
    assert stage.owed("late") == pytest.approx(0.0, abs=2.0)  # it has paid


def test_a_run_is_not_preempted_when_gpus_become_free_sooner() -> None:
    stage = taken(compute_s=25.0)
    stage.apply(submitted("late", 5))
    stage.wait(stage.at + 14.0)
    assert stage.owed("late") >= 0
    assert stage.stops == []


def test_a_job_within_the_slack_keeps_its_runs() -> None:
    def stage(slack: float) -> Stage:
        found = taken(Stage(slack=slack))
        found.apply(submitted("late", 5))
        found.wait(found.at + 500.0, lambda: bool(found.stops))
        return found

    assert stage(1.0).stops == []  # 4 is not more than 2 x 2
    assert stage(0.9).stops != []


def test_a_job_keeps_its_share_and_its_last_run() -> None:
    stage = taken()
    stage.apply(submitted("late", 5))
    for _ in range(9):
        stage.wait(stage.at + 300.0)
        stage.stop()
    assert stage.count("early", "late") == [2, 2]

    stage = Stage()
    stage.node("n", "r", 10, 10)
    stage.learn("long", 1000.0, "n", Task())
    stage.apply(of_kind("long", "low", 9, user="ann"))
    stage.apply(of_kind("long", "high", 9, user="ann", priority=1))  # whose share is both
    for _ in range(9):
        stage.wait(stage.at + 300.0)
        stage.stop()
    assert stage.count("low", "high") == [1, 1]


def test_gpus_being_freed_are_not_preempted_for_twice() -> None:
    stage = taken()
    stage.apply(submitted("late", 5))
    stage.wait(stage.at + 200.0, lambda: bool(stage.stops))
    asked = len(stage.stops)
    for _ in range(5):
        stage.queue("default")  # another round
    assert len(stage.stops) == asked


def test_no_run_is_preempted_for_a_job_that_would_not_get_the_gpu() -> None:
    stage = taken()
    stage.apply(submitted("larger", 50))  # fair sharing would end it after the other
    stage.wait(stage.at + 300.0)
    assert stage.stops == []


def test_a_job_without_a_debt_preempts_no_run() -> None:
    stage = taken(ran_s=300.0)
    stage.apply(submitted("late", 5))
    stage.wait(stage.at + 200.0)  # owed less than 400, of a run that has run for 500
    assert stage.stops == []


def test_needs_of_several_sizes_are_counted_among_gpus_of_their_size() -> None:
    stage = Stage()
    stage.node("small", "r", 10, 10, 10, 10)
    stage.learn("long", 1000.0, "small", Task())
    stage.node("big", "r", 80)
    stage.apply(of_kind("long", "early", 20))
    need = Task(demand=Demand(gpus=1, gpu_memory_bytes=40 * GB))
    stage.apply(*[submitted(name, 3) for name in "abc"], submitted("needy", [need] * 3))
    for _ in range(9):
        stage.wait(stage.at + 100.0)
        stage.stop()
    assert stage.engine.state.jobs.running.array()[1] >= 1


def test_no_run_is_preempted_for_a_queue_at_its_ceiling() -> None:
    stage = Stage()
    stage.queue("capped", max_gpus=2)
    stage.node("n", "r", *[10] * 6)
    stage.learn("long", 1000.0, "n", Task())
    stage.apply(of_kind("long", "inside", 9, queue="capped"), of_kind("long", "outside", 9))
    assert stage.count("inside", "outside") == [2, 4]
    stage.apply(of_kind("long", "late", 9, queue="capped"))
    stage.apply(of_kind("long", "more", 9), of_kind("long", "yet more", 9))
    for _ in range(20):
        stage.wait(stage.at + 50.0)
        stage.stop()
    assert stage.count("inside", "late") == [2, 0]
    assert [f"{job}" for job, _ in stage.runs].count("outside") >= 1


# ---------------------------------------------------------------------------------------- reasons


def test_every_wait_has_its_reason() -> None:
    stage = Stage()
    stage.node("n", "r", 10, 10, 10)
    stage.node("big", "r", 80)
    need = Task(demand=Demand(gpus=1, gpu_memory_bytes=40 * GB))
    stage.apply(
        submitted("large", [need] * 2),
        submitted("huge", [Task(demand=Demand(gpus=1, gpu_memory_bytes=90 * GB))]),
    )
    assert stage.reason("large") == GpuMemory(needed_bytes=40 * GB, largest_free_bytes=10 * GB)
    assert stage.reason("huge") == NothingFits(need="a GPU of 83.8 GiB")
    stage.apply(submitted("one", 9), submitted("two", 9))
    assert stage.reason("one") == ShareLimit(running_gpus=2, share_gpus=2, ahead="large")
