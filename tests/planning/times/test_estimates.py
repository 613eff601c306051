"""Estimates of run times: against plain loops, numerical inversion, and drawn histories."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.base.rng import Random, stream
from headgate.machine.job_order import activate
from headgate.model import Demand, Gpu, Job, Node, Queue, Shard, Task
from headgate.planning.times.estimates import ComputeTimes, Estimates
from headgate.state import JobState, State, TaskState, compact, moves
from headgate.testing.random_worlds import random_state


class World:
    """A state with GPUs enough, and short methods to run tasks in it."""

    def __init__(self) -> None:
        self.state = State()
        for queue in ("default", "night"):
            self.state.set_queue(Queue(name=queue))
        gpus = tuple(Gpu(memory_bytes=1, model=model) for model in ("H100", "V100") * 32)
        self.node = self.state.add_node(Node(id="a", rack="r", gpus=gpus, cpus=64))
        self._numbers = itertools.count()

    def job(self, tasks: int = 1, *, gpus: int = 1, task: Task | None = None, **more: Any) -> int:
        """Submit a job of equal tasks, which wait then, and return its row."""
        number = next(self._numbers)
        fields = {"user": "ada", "queue": "default", **more}
        one = Task(demand=Demand.of(gpus=gpus)) if task is None else task
        job = Job(id=f"j{number}", name="j", tasks=(one,) * tasks, **fields)
        row = self.state.add_job(job)
        activate(self.state, row)
        return row

    def start(self, task: int) -> None:
        state = self.state
        gpus = state.ledger.best_gpus(state.tasks.demand[task], self.node)
        assert gpus is not None
        state.launch(task, self.node, gpus, state.tasks.next_attempt[task])
        state.tasks.started_at[task] = state.now
        state.move_task(task, TaskState.RUNNING)

    def finish(self, task: int) -> None:
        self.state.release(task, TaskState.FINISHED)
        self.state.record_runtime(task)

    def run(self, job: int, *takes_s: float) -> None:
        """Run the first tasks of a job, one after the other, for these times."""
        for task, time_s in zip(self.state.tasks_of(job), takes_s, strict=False):
            self.start(task)
            self.state.now += time_s
            self.finish(task)

    def estimates(self) -> Estimates:
        return Estimates(self.state.freeze())

    def run_s(self, job: int, p: float = 0.5) -> float:
        first = self.state.jobs.first_task[job]
        return float(self.estimates().run_s(np.array([first]), p)[0])

    def end_at(self, task: int, p: float = 0.5) -> float:
        return float(self.estimates().end_at(np.array([task]), p)[0])

    def ends_by(self, task: int, at: float) -> float:
        return float(self.estimates().ends_by(np.array([task]), at)[0])


# ------------------------------------------------------------------------------ distributions

MEDIANS = st.floats(0.01, 1e6)
SPREADS = st.floats(0.05, 2.0)


def survival(whole_s: float, median_s: float, spread: float) -> float:
    longer: float = 1 / (1 + (whole_s / median_s) ** (1 / spread))
    return longer


def inverted(median_s: float, spread: float, ran_s: float, p: float) -> float:
    """Find by bisection the time by which a share `p` of runs has ended, of those past `ran_s`."""

    def is_before(whole_s: float) -> bool:
        longer = survival(whole_s, median_s, spread) / survival(ran_s, median_s, spread)
        return longer > 1 - p

    low, high = ran_s, max(ran_s, median_s) * 1e-3
    while is_before(high):
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if is_before(middle) else (low, middle)
    return high


def times(median_s: float, spread: float) -> ComputeTimes:
    return ComputeTimes(np.array([median_s]), np.array([spread]))


@settings(max_examples=200)
@given(median_s=MEDIANS, spread=SPREADS, ran=st.floats(0, 3), p=st.floats(0.01, 0.99))
def test_quantile_is_that_of_the_runs_as_long_as_this_one(
    median_s: float, spread: float, ran: float, p: float
) -> None:
    ran_s = ran * median_s
    quantile = times(median_s, spread).quantile(np.array([ran_s]), p)[0]
    again_s = 2 * ran_s - inverted(median_s, spread, 0.0, 0.999)
    expected = max(inverted(median_s, spread, ran_s, p), again_s)
    assert quantile == pytest.approx(expected, rel=1e-6)


@settings(max_examples=200)
@given(median_s=MEDIANS, spread=SPREADS, ran=st.floats(0, 2), p=st.floats(0.01, 0.99))
def test_probability_inverts_the_quantile(
    median_s: float, spread: float, ran: float, p: float
) -> None:
    ran_s = np.array([ran * median_s])
    model = times(median_s, spread)
    chance = model.ends_by(model.quantile(ran_s, p), ran_s)[0]
    if 2 * ran_s[0] <= inverted(median_s, spread, 0.0, 0.999):
        assert chance == pytest.approx(p, abs=1e-6)
    else:
        assert chance >= p - 1e-6


def test_a_point_has_all_quantiles_there() -> None:
    model = times(600.0, 0.0)
    for p in (0.01, 0.5, 0.99):
        assert model.quantile(np.array([0.0]), p)[0] == 600.0
        assert model.quantile(np.array([599.0]), p)[0] == 600.0
    ran_s = np.array([10.0])
    assert [model.ends_by(np.array([t]), ran_s)[0] for t in (599.9, 600.0, 601.0)] == [0, 1, 1]


@pytest.mark.parametrize("spread", [0.0, 1e-12, 0.01])
def test_an_overdue_run_takes_the_overdue_time_once_more(spread: float) -> None:
    model, ran_s = times(600.0, spread), np.array([1000.0])
    latest_s = 600.0 * 999**spread
    assert model.quantile(ran_s, 0.5)[0] == pytest.approx(1000 + 1000 - latest_s)
    early, late = np.array([2000 - latest_s - 1]), np.array([2000 - latest_s + 1])
    assert model.ends_by(early, ran_s)[0] == 0
    assert model.ends_by(late, ran_s)[0] == pytest.approx(1, abs=1e-3)


@settings(max_examples=50)
@given(spread=st.one_of(st.just(0.0), SPREADS), ran=st.floats(0, 1e4))
def test_higher_quantiles_are_later_and_none_is_past(spread: float, ran: float) -> None:
    ran_s = np.array([ran])
    found = [times(50.0, spread).quantile(ran_s, p)[0] for p in (0.05, 0.2, 0.5, 0.8, 0.95)]
    assert found == sorted(found)
    assert found[0] >= ran * (1 - 1e-12)


# -------------------------------------------------------------------------------- statistics


def weighted(samples: list[float]) -> tuple[float, float, float]:
    """Weight, mean and variance of samples of which each weighs 59/60 of the next."""
    if not samples:
        return 0.0, 0.0, 0.0
    weights = (59 / 60) ** np.arange(len(samples))[::-1]
    mean = np.average(samples, weights=weights)
    var = np.average((np.array(samples) - mean) ** 2, weights=weights)
    return float(weights.sum()), float(mean), float(var)


def chain_of(job: Job, row_key: Any) -> list[Any]:
    """The classes of a job's only task, as the documentation lists them."""
    group = [(job.user, job.queue, 1), (job.queue, 1), ("all",)]
    if job.estimated_s is not None:
        return [("declared", job.user), ("declared",)]
    if not job.runtime_class:
        return [row_key, *group]
    return [(*row_key, job.user, job.queue, 1), row_key, *group]


@pytest.mark.parametrize("seed", range(6))
def test_statistics_are_those_of_weighted_samples(seed: int) -> None:
    world, rng = World(), stream(seed, "statistics")
    samples: dict[Any, list[float]] = defaultdict(list)
    within: dict[Any, list[float]] = defaultdict(list)
    for _ in range(80):
        row = world.job(
            user=rng.choice(("ada", "grace")),
            queue=rng.choice(("default", "night")),
            runtime_class=rng.choice(("", "sort", "train")),
            estimated_s=rng.choice((None, None, 5.0)),
        )
        takes_s = rng.choice((0.0, 2.0, 5.0, 5.0, rng.expovariate(0.1)))
        world.run(row, takes_s)
        job = world.state.job(row)
        whose: Any = job.runtime_class or (job.id,)
        key: Any = (whose, 1, False, 0)
        sample = math.log(max(takes_s, 1e-3))
        if job.estimated_s is not None:
            if job.runtime_class:
                samples[key].append(sample)
            sample = sample - math.log(5.0)
        below: Any = None
        for name in chain_of(job, key):
            if below is not None and samples[below]:
                weight, mean, _ = weighted(samples[below])
                weight *= 59 / 60
                within[name].append((sample - mean) ** 2 * weight / (weight + 1))
            if below is not None:
                samples[below].append(sample)
            below = name
        samples[below].append(sample)
    table = world.state.runtime_classes
    for key, at in world.state.names.runtime_class_rows.items():
        found = table.count[at], table.log_mean[at], table.log_var[at]
        assert found == pytest.approx(weighted(samples[key]), abs=1e-9), key
        found_within = table.within_count[at], table.within_var[at]
        assert found_within == pytest.approx(weighted(within[key])[:2], abs=1e-9), key


def test_a_gang_counts_once_when_its_last_member_ends() -> None:
    world = World()
    job = world.job(4, gpus=2, gang=True, runtime_class="train")
    first = world.state.jobs.first_task[job]
    for task in range(first, first + 4):
        world.start(task)
    for task in range(first, first + 4):
        world.state.now += 10.0
        world.finish(task)
    rows, table = world.state.names.runtime_class_rows, world.state.runtime_classes
    for key in (("ada", "default", 8), ("default", 8), ("all",)):
        assert table.count[rows[key]] == 1
        assert table.log_mean[rows[key]] == pytest.approx(math.log(40.0))


# --------------------------------------------------------------------------------- estimates


def test_nothing_is_known_before_the_first_end() -> None:
    world = World()
    job, limited = world.job(2), world.job(time_limit_s=100.0)
    world.start(0)
    world.state.now += 5
    assert math.isnan(world.run_s(job))
    assert world.end_at(0) == math.inf
    assert world.ends_by(0, 1e9) == 0
    assert world.run_s(limited) == 100.0
    assert world.end_at(world.state.jobs.first_task[limited]) == 105.0


def test_the_first_end_of_another_is_a_rough_estimate_of_any() -> None:
    world = World()
    world.run(world.job(), 100.0)
    other = world.job(user="grace", queue="night", gpus=4)
    assert world.run_s(other) == pytest.approx(100)
    assert world.run_s(other, 0.9) > 500, "one sample is little evidence on the jobs of others"


def test_equal_runs_of_a_kind_make_a_narrow_estimate() -> None:
    world, rng = World(), stream(1, "kinds")
    kinds = {f"kind-{n}": 10 * 1.8**n for n in range(8)}
    for _ in range(12):
        for kind in rng.sample(list(kinds), len(kinds)):
            world.run(world.job(runtime_class=kind), kinds[kind])
    for kind, takes_s in kinds.items():
        job = world.job(runtime_class=kind)
        assert world.run_s(job) == pytest.approx(takes_s, rel=0.05)
        assert world.run_s(job, 0.9) / world.run_s(job, 0.1) < 1.3
    unknown = world.job(runtime_class="new")
    assert world.run_s(unknown, 0.9) / world.run_s(unknown, 0.1) > 8


def test_another_users_runs_of_a_kind_count_until_a_user_has_own_ones() -> None:
    world, rng = World(), stream(2, "users")
    for _ in range(20):
        for kind, takes_s in (("sort", 30.0), ("search", 900.0)):
            world.run(world.job(runtime_class=kind), takes_s * rng.uniform(0.9, 1.1))
    graces = world.job(user="grace", runtime_class="sort")
    assert world.run_s(graces) == pytest.approx(30, rel=0.3)
    world.run(world.job(10, user="grace", runtime_class="sort"), *[200.0] * 10)
    assert world.run_s(graces) == pytest.approx(200, rel=0.1)
    adas = world.job(runtime_class="sort")
    assert world.run_s(adas) == pytest.approx(30, rel=0.3)


def test_runs_on_models_of_gpus_that_a_job_names_count_for_such_jobs() -> None:
    world, rng = World(), stream(3, "models")
    slow, fast = (
        Task(demand=Demand(gpus=1, gpu_models=("V100",))),
        Task(demand=Demand(gpus=1, gpu_models=("H100", "h200"))),
    )
    for _ in range(20):
        for task, takes_s in ((slow, 900.0), (fast, 30.0)):
            job = world.job(task=task, runtime_class="train")
            world.run(job, takes_s * rng.uniform(0.9, 1.1))
    same = Task(demand=Demand(gpus=1, gpu_models=("H200", "h100", "H100")))
    assert world.run_s(world.job(task=same, runtime_class="train")) == pytest.approx(30, rel=0.1)
    assert world.run_s(world.job(task=slow, runtime_class="train")) == pytest.approx(900, rel=0.1)


def test_declared_times_that_were_exact_stay_exact() -> None:
    world = World()
    world.state.now = 1e8  # where a float's last digit is 1e-8 s
    for declared_s in (10.0, 3600.0, 0.5, 77.7):
        world.run(world.job(estimated_s=declared_s), declared_s)
    job = world.job(estimated_s=123.0)
    for p in (0.01, 0.5, 0.99):
        assert world.run_s(job, p) == 123.0
    task = world.state.jobs.first_task[job]
    world.start(task)
    world.state.now += 23
    assert world.end_at(task, 0.9) == 1e8 + 10 + 3600 + 0.5 + 77.7 + 123
    assert world.ends_by(task, world.state.now + 99.9) == 0
    assert world.ends_by(task, world.state.now + 100) == 1


def test_declared_times_are_not_corrected_in_a_queue_that_takes_them_unchanged() -> None:
    world = World()
    world.state.set_queue(Queue(name="night", estimate="declared"))
    for _ in range(30):
        world.run(world.job(estimated_s=1000.0, queue="night"), 100.0)
    job = world.job(estimated_s=1000.0, queue="night")
    for p in (0.01, 0.5, 0.99):
        assert world.run_s(job, p) == 1000.0
    assert world.run_s(world.job(estimated_s=1000.0)) < 200.0, "the other queue corrects them"
    task = world.state.jobs.first_task[job]
    started_at = world.state.now
    world.start(task)
    world.state.now += 1200
    assert world.end_at(task) == started_at + 1400, "it takes the overdue time once more"


def test_a_user_who_declares_twice_the_time_is_corrected() -> None:
    world, rng = World(), stream(3, "declared")
    for _ in range(30):
        declared_s = rng.uniform(100, 10_000)
        world.run(world.job(estimated_s=declared_s), declared_s / 2)
        world.run(world.job(user="grace", estimated_s=declared_s), declared_s)
    assert world.run_s(world.job(estimated_s=1000.0)) == pytest.approx(500, rel=0.05)
    assert world.run_s(world.job(user="grace", estimated_s=1000.0)) == pytest.approx(1000, rel=0.05)


def test_no_estimate_is_beyond_the_time_limit() -> None:
    world = World()
    job = world.job(estimated_s=500.0, time_limit_s=300.0)
    assert world.run_s(job) == 300.0
    task = world.state.jobs.first_task[job]
    world.start(task)
    world.state.now += 100
    assert world.end_at(task) == 300.0
    assert (world.ends_by(task, 299.0), world.ends_by(task, 300.0)) == (0, 1)
    world.state.now += 250  # still there, in its grace period
    assert world.end_at(task) == world.state.now


def test_saved_progress_shortens_what_is_left() -> None:
    world = World()
    task = Task(checkpoint_s=10.0)
    job = world.job(task=task, estimated_s=100.0)
    row = world.state.jobs.first_task[job]
    world.start(row)
    world.state.now += 45
    world.state.release(row, TaskState.WAITING)
    assert world.run_s(job) == 60.0
    world.start(row)
    world.state.now += 5
    assert world.end_at(row) == world.state.now + 55


def test_reading_comes_before_computing() -> None:
    world = World()
    shards = (Shard(id="s", size_bytes=10**9),)
    task = Task(reads=("s",))
    rack = world.state.bandwidth.rack_bytes_per_s
    job = world.job(2, task=task, shards=shards, estimated_s=100.0, runtime_class="sort")
    assert world.run_s(job) == pytest.approx(100 + 1e9 / rack)
    first = world.state.jobs.first_task[job]
    world.start(first)
    world.state.tasks.read_s[first] = 7.0
    world.state.now += 3
    assert world.end_at(first) == pytest.approx(world.state.now - 3 + 107)
    world.state.now += 104
    world.finish(first)
    assert world.run_s(job) == pytest.approx(107), "as long as the last run of its kind"


def test_a_run_that_is_being_stopped_ends_now() -> None:
    world = World()
    job = world.job(estimated_s=100.0)
    task = world.state.jobs.first_task[job]
    world.start(task)
    world.state.move_task(task, TaskState.STOPPING)
    assert world.end_at(task) == world.state.now
    assert world.ends_by(task, world.state.now) == 1


def test_task_that_moves_is_estimated_as_though_its_next_run_started_now() -> None:
    world = World()
    job = world.job(estimated_s=100.0, task=Task(checkpoint_s=10.0))
    task = world.state.jobs.first_task[job]
    world.start(task)
    world.state.now += 35
    target = world.state.free_gpus_of(world.node)[:1]
    moves.hold_target(world.state, task, world.node, tuple(target.tolist()))
    world.state.move_task(task, TaskState.STOPPING)
    assert world.end_at(task) == pytest.approx(world.state.now + 100)
    moves.vacate(world.state, task)
    assert world.end_at(task) == pytest.approx(world.state.now + 100 - 30), "30 s are saved"


@pytest.mark.parametrize("p", [0.0, 1.0, -0.5, math.nan])
def test_no_quantile_is_refused(p: float) -> None:
    world = World()
    world.job()
    with pytest.raises(ValueError, match="a quantile is more than 0 and less than 1"):
        world.run_s(0, p)


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6))
def test_estimates_of_random_states_are_consistent(seed: int) -> None:
    state = random_state(seed)
    snapshot = state.freeze()
    tasks = np.arange(len(snapshot.tasks.state))
    estimates = Estimates(snapshot)
    low, high = estimates.end_at(tasks, 0.2), estimates.end_at(tasks, 0.8)
    assert (snapshot.now <= low).all()
    assert (low <= high).all()
    known = np.isfinite(high)
    assert (estimates.ends_by(tasks[known], high[known] + 1e-5) >= 0.8 - 1e-6).all()
    assert (estimates.ends_by(tasks, snapshot.now - 1) == 0).all()
    limit_s = snapshot.jobs.time_limit_s.array()[snapshot.tasks.job.array()]
    assert not (estimates.run_s(tasks, 0.9) > limit_s).any()
    shuffled = tasks[::-1]
    assert (estimates.end_at(shuffled, 0.8) == high[::-1]).all()


def test_estimates_survive_compaction() -> None:
    world, rng = World(), stream(4, "compaction")
    for _ in range(30):
        kind = rng.choice(("sort", "train", ""))
        job = world.job(runtime_class=kind, estimated_s=rng.choice((None, 50.0)))
        world.run(job, rng.expovariate(0.02))
        world.state.move_job(job, JobState.FINISHED)
    kept = [world.job(runtime_class=kind) for kind in ("sort", "train", "")]
    kept.append(world.job(user="grace", estimated_s=70.0))
    before = [world.run_s(job, 0.8) for job in kept]
    for job in range(kept[0]):
        world.state.archive(job)
    compact(world.state)
    assert len(world.state.names.jobs) == len(kept)
    assert [world.run_s(job, 0.8) for job in range(len(kept))] == before


# ------------------------------------------------------------------------- drawn histories


def drawn_history(rng: Random, runs: int) -> list[tuple[str, str, float]]:
    """Runs of (user, kind, seconds): users, their kinds and runs differ by normal logarithms."""
    history, kinds = [], {}
    users = {f"u{n}": rng.gauss(5.0, 1.0) for n in range(8)}
    for user, mean in users.items():
        for number in range(5):
            kinds[f"{user}-{number}"] = user, rng.gauss(mean, 1.0), rng.choice((0.05, 0.3, 0.8))
    for _ in range(runs):
        kind = rng.choice(list(kinds))
        user, mean, sd = kinds[kind]
        history.append((user, kind, math.exp(rng.gauss(mean, sd))))
    return history


def test_intervals_cover_what_they_say() -> None:
    inside, asked = 0, 0
    for seed in range(4):
        world = World()
        for number, (user, kind, takes_s) in enumerate(drawn_history(stream(seed, "drawn"), 300)):
            job = world.job(user=user, runtime_class=kind)
            if number >= 20:
                asked += 1
                inside += world.run_s(job, 0.1) <= takes_s <= world.run_s(job, 0.9)
            world.run(job, takes_s)
    assert 0.75 <= inside / asked <= 0.87, f"{inside} of {asked} inside the 80 % interval"
