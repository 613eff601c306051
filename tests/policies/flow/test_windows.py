"""Windows of reserved GPUs (`headgate`): tasks of the flow run there until the reservations begin.

The bench checks of every round that its flow is certified and costs as much as solved cold.
"""

from __future__ import annotations

import numpy as np
from tests.cases import cases
from tests.policies.flow.bench import GB, Bench, kept, submitted
from tests.policies.flow.test_unit_reservations import estimated

from headgate.base.rng import Random, stream
from headgate.model import Demand, Task
from headgate.planning.times.estimates import Estimates
from headgate.policies.flow import TimelyFlow
from headgate.policies.flow.eligible import Round
from headgate.policies.flow.placed import Placed
from headgate.policies.flow.readback import Choice
from headgate.policies.flow.times import BACKFILL_P
from headgate.policies.flow.windows import LENGTHS_S, UNLIMITED, shortest_windows, windows_of
from headgate.protocol import Plan
from headgate.protocol.reasons import WaitsForLocality
from headgate.state import Snapshot


def reserved(*gpus: int, held_s: float, gang: int) -> Bench:
    """Return a cluster on which a gang of whole nodes waits for the first one, in `held_s`."""
    stage = Bench(TimelyFlow())
    for number, count in enumerate(gpus):
        stage.node(f"n{number}", f"r{number}", *[10] * count)
    stage.apply(estimated(submitted("long", [Task(demand=Demand.of(gpus=gpus[0]))]), held_s))
    stage.apply(
        estimated(
            submitted("gang", [Task(demand=Demand.of(gpus=n)) for n in gpus[:gang]], gang=True), 9.0
        )
    )
    assert not stage.running("gang")
    return stage


def test_tasks_run_where_their_data_is_until_a_gang_needs_the_gpus() -> None:
    stage = reserved(2, 2, 2, held_s=1000.0, gang=3)
    stage.data("a", GB, "n2")
    stage.data("b", GB, "n1")
    tasks = [Task(reads=("a",)), Task(reads=("a",)), Task(reads=("b",)), Task(reads=("b",))]
    stage.apply(estimated(submitted("map", tasks), 200.0))
    where = stage.where()
    assert [where[f"map/{n}"] for n in range(4)] == ["n2", "n2", "n1", "n1"]


def test_no_task_starts_in_a_window_that_is_too_short_for_it() -> None:
    stage = reserved(2, 2, held_s=1000.0, gang=2)
    stage.apply(
        estimated(submitted("late", 1), 1001.0),
        estimated(submitted("soon", 1), 300.0),
        submitted("unknown", 1),
    )
    assert set(stage.where()) == {"long/0", "soon/0"}


def test_task_waits_for_a_reserved_gpu_that_is_free_in_time_rather_than_move_its_data() -> None:
    stage = reserved(2, 1, 1, held_s=1000.0, gang=2)
    stage.data("a", GB, "n1")
    stage.apply(estimated(submitted("first", [Task(reads=("a",))]), 20.0))
    assert stage.where()["first/0"] == "n1"
    stage.apply(estimated(submitted("second", [Task(reads=("a",))]), 20.0))
    assert not stage.running("second")
    reason = stage.reason("second")
    assert isinstance(reason, WaitsForLocality)
    assert reason.wait_s < reason.move_s
    stage.finish("first", 0)
    assert stage.where()["second/0"] == "n1"


def test_windows_are_rounded_down_and_tasks_up() -> None:
    at_most = [*LENGTHS_S.tolist(), np.inf]
    for seconds in (0.0, 59.0, 60.0, 61.0, 299.0, 300.0, 7200.0, 1e9):
        (window,) = windows_of(np.array([seconds])).tolist()
        assert window < 0 or at_most[window] <= seconds
        (needed,) = shortest_windows(np.array([seconds])).tolist()
        assert at_most[needed] >= seconds
    assert shortest_windows(np.array([np.inf])).tolist() == [UNLIMITED]
    assert windows_of(np.array([-np.inf])).tolist() == [-1]


class Watched(TimelyFlow):
    """Checks every start on a GPU that is kept for a reservation."""

    in_windows = held = warm = 0

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        plan = super().decide(snapshot, rng)
        flow = kept(self).flow
        self.warm += flow is not None and flow.changes > 0 and flow._windows > 1
        return plan

    def choose(self, round_: Round, placed: Placed, wait_price: np.ndarray) -> Choice:
        units, standing = round_.reserving, round_.standing
        if units is None or units.windows is None:
            return super().choose(round_, placed, wait_price)
        table, first = units._placing.table, standing.snapshot.nodes.first_gpu
        reserved_from = np.where(
            table.is_kept(np.arange(len(table.reserved_from))), table.reserved_from, np.inf
        )
        before = len(units._scratch.starts)
        choice = super().choose(round_, placed, wait_price)
        starts = units._scratch.starts[before:]
        ends_at = table.now + Estimates(standing.snapshot).run_s(
            np.array([start.task for start in starts], np.int64), BACKFILL_P
        )
        for start, end_at in zip(starts, ends_at.tolist(), strict=True):
            assert end_at <= reserved_from[first[start.node] + start.gpus[0]] + 1e-6
        plain = choice.starts
        cells = plain.node * standing.free.shape[1] + plain.gpu_class
        assert (np.bincount(cells, minlength=standing.free.size) <= standing.free.ravel()).all()
        self.in_windows += int((placed.window < UNLIMITED).sum())
        self.held += len(round_.windows.held.runs.gpu)
        return choice


def step(stage: Bench, number: int, rng: Random) -> None:
    """Submit a map or a gang, end runs, or let time pass."""
    kind = rng.random()
    if kind < 0.3:
        reads = [(rng.choice(("a", "b", "c", "d")),) for _ in range(rng.randint(1, 6))]
        memory = rng.choice((0, 0, 20 * GB))
        tasks = [Task(reads=each, demand=Demand(gpus=1, gpu_memory_bytes=memory)) for each in reads]
        event = submitted(f"map{number}", tasks, user=rng.choice("xy"))
        stage.apply(estimated(event, rng.choice((5.0, 50.0, 70.0, 400.0, 3000.0))))
    elif kind < 0.4:
        gang = [Task(demand=Demand(gpus=2))] * rng.randint(2, 4)
        event = submitted(f"gang{number}", gang, user="z", gang=True)
        stage.apply(estimated(event, rng.choice((100.0, 1000.0, 9000.0))))
    elif kind < 0.7 and stage.runs:
        stage.finish(*rng.choice(sorted(stage.runs)))
    else:
        stage.at += rng.choice((0.5, 20.0, 200.0))
        stage.queue("other", weight=1.0 + number)


def test_random_rounds_keep_reservations_and_stay_optimal() -> None:
    in_windows = held = warm = 0
    for seed in range(cases(5)):
        policy, rng = Watched(), stream(seed, "windows")
        stage = Bench(policy)
        for number in range(4):
            stage.node(f"n{number}", "rs"[number % 2], 10, 10, *[40] * (number % 3))
        for shard in "abcd":
            stage.data(shard, GB, *rng.sample(["n0", "n1", "n2", "n3"], 2))
        for number in range(50):
            step(stage, number, rng)
        in_windows, held = in_windows + policy.in_windows, held + policy.held
        warm += policy.warm
    assert in_windows > 20
    assert held > 20
    assert warm > 40
