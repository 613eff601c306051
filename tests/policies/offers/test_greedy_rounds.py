"""Single greedy rounds by hand: which job gets offers, and what it takes, declines and loses."""

from __future__ import annotations

import pytest

from headgate.app import POLICIES
from headgate.base.errors import SpecError
from headgate.base.rng import stream
from headgate.model import Bandwidth, Demand, Gpu, Job, Node, Queue, Shard, Task
from headgate.policies.offers.greedy import (
    GreedyDelay,
    GreedyPreemption,
    GreedySharing,
)
from headgate.ports import Policy, make_policy
from headgate.protocol import Plan
from headgate.protocol.reasons import (
    BelowShare,
    Declines,
    GpuMemory,
    NothingFits,
    QueueLimit,
    Reason,
    ShareLimit,
    Shortage,
)
from headgate.state import JobState, State, TaskState, check

KNOWN = {name: POLICIES[name] for name in ("gs", "gsp", "gsd")}


class Stage:
    """A state built by hand; read prices per byte are 1 us on the node, 3 in the rack, 8 beyond."""

    def __init__(self) -> None:
        self.state = State()
        self.state.bandwidth = Bandwidth(
            disk_bytes_per_s=1e6, rack_bytes_per_s=5e5, cluster_bytes_per_s=2.5e5
        )
        self.state.set_queue(Queue(name="default"))

    def node(self, name: str, *memory: int, rack: str = "r", cpus: int = 4) -> int:
        gpus = tuple(Gpu(memory_bytes=m) for m in memory)
        return self.state.add_node(Node(id=name, rack=rack, gpus=gpus, cpus=cpus))

    def data(self, shard: str, *nodes: int, size_bytes: int = 1000) -> str:
        row = self.state.shard(Shard(id=shard, size_bytes=size_bytes))
        for node in nodes:
            self.state.add_replica(row, node)
        return shard

    def job(
        self, name: str, tasks: int | list[Task], queue: str = "default", *, gang: bool = False
    ) -> int:
        many = tuple(tasks) if isinstance(tasks, list) else (Task(),) * tasks
        job = Job(id=name, name=name, user=name, queue=queue, tasks=many, gang=gang)
        row = self.state.add_job(job)
        self.state.move_job(row, JobState.ACTIVE)
        for task in self.state.tasks_of(row):
            blocked = self.state.tasks.blockers[task] > 0
            self.state.move_task(task, TaskState.BLOCKED if blocked else TaskState.WAITING)
        return row

    def run(self, job: int, ordinal: int, node: int, *gpus: int) -> None:
        """Start a task now, by default on GPU 0, and advance the clock by one second."""
        task = self.state.tasks_of(job)[ordinal]
        gpus = (gpus or (0,)) if self.state.tasks.gpus[task] else ()
        self.state.launch(task, node, gpus, attempt=1)
        self.state.move_task(task, TaskState.RUNNING)
        self.state.now += 1.0

    def plan(self, policy: Policy) -> Plan:
        check(self.state)
        return policy.decide(self.state.freeze(), stream(1))

    def where(self, plan: Plan) -> list[str]:
        """Return the placements in order, as `job/ordinal node.gpu`."""
        return [
            f"{self.name(p.task)} {self.state.node(p.node).id}" + "".join(f".{g}" for g in p.gpus)
            for p in plan.starts
        ]

    def name(self, task: int) -> str:
        job = self.state.job(self.state.tasks.job[task]).id
        return f"{job}/{self.state.ordinal(task)}"


def reason(plan: Plan, job: int) -> Reason:
    (found,) = [r.reason for r in plan.refusals if job in r.jobs]
    return found


def reading(*shards: str, memory: int = 0) -> Task:
    return Task(reads=shards, demand=Demand(gpus=1, gpu_memory_bytes=memory))


@pytest.fixture
def stage() -> Stage:
    return Stage()


# --- gs ----------------------------------------------------------------------------------------


def test_each_gpu_goes_to_the_job_that_holds_fewest(stage: Stage) -> None:
    stage.node("n", 1, 1, 1, 1)
    a, _ = stage.job("a", 9), stage.job("b", 9)
    stage.run(a, 0, 0)
    assert stage.where(stage.plan(GreedySharing())) == ["b/0 n.1", "a/1 n.2", "b/1 n.3"]


def test_job_takes_its_cheapest_pair_of_task_and_gpu_first(stage: Stage) -> None:
    left, right = stage.node("left", 1), stage.node("right", 1, rack="q")
    far, near = stage.data("far"), stage.data("near", right)
    stage.job("a", [reading(far), reading(near)])
    assert stage.where(stage.plan(GreedySharing())) == ["a/1 right.0", "a/0 left.0"]
    assert left != right


def test_job_takes_a_gpu_that_another_job_needs_more(stage: Stage) -> None:
    """The example of the flow paper's introduction, with the nodes exchanged."""
    two, one = stage.node("two", 1), stage.node("one", 1)
    stage.job("1", [reading(stage.data("d11", one, two)), reading(stage.data("d12", two))])
    stage.job("2", [reading(stage.data("d21", two))])
    assert stage.where(stage.plan(GreedySharing())) == ["1/0 two.0", "2/0 one.0"]


def test_job_at_its_share_waits_while_a_job_below_its_share_can_use_the_gpu(stage: Stage) -> None:
    small = stage.node("small", 1, 1, 1)
    stage.node("large", 2)
    a = stage.job("a", 9)
    b = stage.job("b", [Task(demand=Demand(gpus=1, gpu_memory_bytes=2)), *[Task()] * 3])
    for ordinal in range(2):
        stage.run(b, 1 + ordinal, small, ordinal)
    # b is at its share of 2; a gets both free GPUs, up to its own share.
    plan = stage.plan(GreedySharing())
    assert stage.where(plan) == ["a/0 small.2", "a/1 large.0"]
    assert reason(plan, b) == ShareLimit(running_gpus=2, share_gpus=2, ahead="a")
    assert reason(plan, a) == ShareLimit(running_gpus=2, share_gpus=2, ahead="b")


def test_gpus_beyond_all_shares_are_divided_evenly(stage: Stage) -> None:
    n = stage.node("n", *[1] * 6)
    stage.job("a", 9)
    stage.job("b", 9)
    c = stage.job("c", [Task(), *[Task(after=(0,))] * 9])
    stage.run(c, 0, n)
    large = stage.job("large", [Task(demand=Demand(gpus=1, gpu_memory_bytes=5))] * 4)
    plan = stage.plan(GreedySharing())
    assert stage.where(plan) == ["a/0 n.1", "b/0 n.2", "a/1 n.3", "b/1 n.4", "a/2 n.5"]
    assert isinstance(reason(plan, large), NothingFits)


def test_smallest_gpu_that_fits_is_taken_unless_a_larger_one_is_nearer(stage: Stage) -> None:
    here = stage.node("here", 3, 2, 1)
    stage.node("there", 2)
    d = stage.data("d", here)
    stage.job("a", [reading(d, memory=2), reading(d, memory=2), reading(d, memory=2)])
    plan = stage.plan(GreedySharing())
    assert stage.where(plan) == ["a/0 here.1", "a/1 here.0", "a/2 there.0"]


def test_queue_at_its_ceiling_leaves_free_gpus_to_other_queues(stage: Stage) -> None:
    stage.state.set_queue(Queue(name="capped", max_gpus=1))
    stage.node("n", 1, 1, 1)
    a, b = stage.job("a", 5, queue="capped"), stage.job("b", 1)
    plan = stage.plan(GreedySharing())
    assert stage.where(plan) == ["a/0 n.0", "b/0 n.1"]
    assert reason(plan, a) == QueueLimit(queue="capped", used_gpus=1, max_gpus=1)
    assert b > a


def test_job_that_needs_more_memory_than_free_gpus_have_waits_with_that_reason(
    stage: Stage,
) -> None:
    n = stage.node("n", 1, 2)
    a, b = stage.job("a", 1), stage.job("b", [Task(demand=Demand(gpus=1, gpu_memory_bytes=2))])
    stage.run(a, 0, n, 1)
    plan = stage.plan(GreedySharing())
    assert not plan.starts
    assert reason(plan, b) == GpuMemory(needed_bytes=2, largest_free_bytes=1)


def test_tasks_without_a_gpu_are_placed_on_cpu_slots(stage: Stage) -> None:
    stage.node("n", 1, cpus=1)
    a = stage.job("a", [Task(demand=Demand(cpus_milli=1000)), Task(demand=Demand(cpus_milli=1000))])
    plan = stage.plan(GreedySharing())
    assert stage.where(plan) == ["a/0 n"]
    assert isinstance(reason(plan, a), Shortage)


@pytest.mark.parametrize("policy", [GreedySharing(), GreedyPreemption(), GreedyDelay()])
def test_wide_unit_starts_at_the_turn_of_its_job(stage: Stage, policy: Policy) -> None:
    stage.node("n", *[1] * 6)
    stage.job("two", [Task(demand=Demand(gpus=2)), Task(demand=Demand(gpus=2))])
    stage.job("one", 2)
    assert stage.where(stage.plan(policy)) == [
        "two/0 n.0.1",
        "one/0 n.2",
        "one/1 n.3",
        "two/1 n.4.5",
    ]


@pytest.mark.parametrize("policy", [GreedySharing(), GreedyPreemption(), GreedyDelay()])
def test_node_with_most_free_gpus_is_kept_for_the_first_in_line_until_it_starts(
    stage: Stage, policy: Policy
) -> None:
    stage.node("left", 1, 1, 1)
    stage.node("right", 1, 1, 1)
    old = stage.job("old", 3)
    for ordinal, (node, gpu) in enumerate([(0, 0), (0, 1), (1, 0)]):
        stage.run(old, ordinal, node, gpu)
    wide = stage.job("wide", [Task(demand=Demand(gpus=3))])
    stage.state.now = 7.0
    plan = stage.plan(policy)
    assert plan.memo["in_line_since"] == {wide: 7.0}
    stage.state.write_memo({"in_line_since": {"wide": 7.0}})
    stage.job("new", 9)
    plan = stage.plan(policy)
    assert stage.where(plan) == ["new/0 left.2"], "two GPUs of the other node are kept"
    stage.state.release(2, TaskState.FINISHED)
    plan = stage.plan(policy)
    assert stage.where(plan) == ["wide/0 right.0.1.2", "new/0 left.2"]
    assert plan.memo["in_line_since"] == {wide: -1.0}


def test_unit_that_no_idle_node_holds_keeps_no_gpus(stage: Stage) -> None:
    stage.node("n", 1, 1, 1)
    stage.job("never", [Task(demand=Demand(gpus=4))])
    stage.job("new", 9)
    plan = stage.plan(GreedySharing())
    assert stage.where(plan) == ["new/0 n.0", "new/1 n.1", "new/2 n.2"]
    assert plan.memo == {}


def test_room_below_a_ceiling_is_kept_for_the_first_in_line(stage: Stage) -> None:
    stage.state.set_queue(Queue(name="capped", max_gpus=3))
    n = stage.node("n", *[1] * 8)
    old = stage.job("old", 2, queue="capped")
    stage.run(old, 0, n, 0)
    stage.run(old, 1, n, 1)
    wide = stage.job("wide", [Task(demand=Demand(gpus=3))], queue="capped")
    stage.state.write_memo({"in_line_since": {"wide": 0.0}})
    small = stage.job("small", 1, queue="capped")
    assert stage.where(stage.plan(GreedySharing())) == []
    assert small > wide


def test_wide_units_of_a_queue_stop_at_its_ceiling(stage: Stage) -> None:
    stage.state.set_queue(Queue(name="capped", max_gpus=3))
    stage.node("n", *[1] * 6)
    a = stage.job("a", [Task(demand=Demand(gpus=2)), Task(demand=Demand(gpus=2))], queue="capped")
    b = stage.job("b", 2, queue="capped")
    plan = stage.plan(GreedySharing())
    assert stage.where(plan) == ["a/0 n.0.1", "b/0 n.2"]
    full = QueueLimit(queue="capped", used_gpus=3, max_gpus=3)
    assert reason(plan, a) == reason(plan, b) == full


# --- gsp ---------------------------------------------------------------------------------------


def occupied(stage: Stage, held: int, *, newcomer: int | list[Task]) -> tuple[int, int]:
    """Add job `a`, with `held` GPUs of node 0 and as many waiting tasks, then job `b`."""
    a = stage.job("a", 2 * held)
    for ordinal in range(held):
        stage.run(a, ordinal, 0, ordinal)
    return a, stage.job("b", newcomer)


def test_latest_runs_are_preempted_down_to_the_share(stage: Stage) -> None:
    stage.node("n", *[1] * 8)
    _, b = occupied(stage, 8, newcomer=9)
    plan = stage.plan(GreedyPreemption())
    assert [stage.name(t) for t in plan.stops.task.tolist()] == ["a/7", "a/6", "a/5", "a/4"]
    assert reason(plan, b) == BelowShare(running_gpus=0, share_gpus=4, ahead="a", ahead_over_gpus=4)


def test_no_more_runs_are_preempted_than_jobs_below_their_share_can_use(stage: Stage) -> None:
    stage.node("n", *[1] * 8)
    occupied(stage, 8, newcomer=2)
    plan = stage.plan(GreedyPreemption())
    assert [stage.name(t) for t in plan.stops.task.tolist()] == ["a/7", "a/6"]


def test_no_run_is_preempted_for_a_job_that_cannot_use_its_gpu(stage: Stage) -> None:
    stage.node("n", *[1] * 4)
    large = stage.node("large", 2)
    _, b = occupied(
        stage,
        4,
        newcomer=[
            Task(demand=Demand(gpus=1, gpu_memory_bytes=2)),
            Task(demand=Demand(gpus=1, gpu_memory_bytes=2)),
        ],
    )
    stage.run(b, 0, large)
    assert stage.plan(GreedyPreemption(slack=0.0)).stops.task.tolist() == []


@pytest.mark.parametrize(("slack", "victims"), [(0.25, []), (0.24, ["a/4"]), (0.0, ["a/4"])])
def test_job_above_its_share_within_slack_loses_no_run(
    stage: Stage, slack: float, victims: list[str]
) -> None:
    stage.node("n", *[1] * 8)
    _, b = occupied(stage, 5, newcomer=9)
    for ordinal in range(3):
        stage.run(b, ordinal, 0, 5 + ordinal)
    plan = stage.plan(GreedyPreemption(slack=slack))
    assert [stage.name(t) for t in plan.stops.task.tolist()] == victims


def test_job_does_not_lose_its_last_run(stage: Stage) -> None:
    stage.node("n", 1)
    a = stage.job("a", 2)
    stage.run(a, 0, 0)
    stage.state.set_queue(Queue(name="heavy", weight=100.0))
    stage.job("b", 5, queue="heavy")
    assert stage.plan(GreedyPreemption(slack=0.0)).stops.task.tolist() == []


def test_stopping_runs_count_as_freed_gpus(stage: Stage) -> None:
    stage.node("n", *[1] * 8)
    occupied(stage, 8, newcomer=9)
    policy = GreedyPreemption()
    for (task,) in stage.plan(policy).stops:
        stage.state.move_task(task, TaskState.STOPPING)
    assert stage.plan(policy).stops.task.tolist() == []
    for ordinal in (7, 6, 5, 4):
        stage.state.release(ordinal, TaskState.WAITING)
    plan = stage.plan(policy)
    assert stage.where(plan) == ["b/0 n.4", "b/1 n.5", "b/2 n.6", "b/3 n.7"]
    assert plan.stops.task.tolist() == []


def test_job_of_a_queue_at_its_ceiling_preempts_runs_of_that_queue_only(stage: Stage) -> None:
    stage.state.set_queue(Queue(name="capped", max_gpus=2))
    n = stage.node("n", *[1] * 6)
    over, other = stage.job("over", 4, queue="capped"), stage.job("other", 4)
    stage.run(over, 0, n, 0)
    stage.run(over, 1, n, 1)
    for ordinal in range(4):  # the latest runs, but their end gives `capped` no GPU
        stage.run(other, ordinal, n, 2 + ordinal)
    stage.job("needy", 1, queue="capped")
    plan = stage.plan(GreedyPreemption(slack=0.0))
    assert [stage.name(t) for t in plan.stops.task.tolist()] == ["over/1"]


def test_run_on_several_gpus_is_preempted_for_several_tasks_within_the_share(stage: Stage) -> None:
    n = stage.node("n", *[1] * 8)
    a = stage.job("a", [Task(demand=Demand(gpus=2))] * 9)
    for ordinal in range(4):
        stage.run(a, ordinal, n, *(2 * ordinal, 2 * ordinal + 1))
    stage.job("b", 3)
    plan = stage.plan(GreedyPreemption())
    assert [stage.name(t) for t in plan.stops.task.tolist()] == ["a/3"], "share 5: 6 are left"
    stage.job("c", 9)
    plan = stage.plan(GreedyPreemption())
    assert [stage.name(t) for t in plan.stops.task.tolist()] == ["a/3", "a/2"], "share 3"


def test_gang_is_never_preempted(stage: Stage) -> None:
    n = stage.node("n", *[1] * 4)
    gang = stage.job("gang", 4, gang=True)
    for ordinal in range(4):
        stage.run(gang, ordinal, n, ordinal)
    stage.job("b", 9)
    assert stage.plan(GreedyPreemption(slack=0.0)).stops.task.tolist() == []


# --- gsd ---------------------------------------------------------------------------------------


def far_from_data(stage: Stage) -> int:
    """Add job `a`, two GPUs below its share, with data on a node that another job holds."""
    best = stage.node("best", 1)
    stage.node("same-rack", 1, cpus=0)
    stage.node("elsewhere", 1, rack="q")
    owner = stage.job("owner", 1)
    stage.run(owner, 0, best)
    d = stage.data("d", best)
    return stage.job("a", [reading(d), reading(d), reading(d)])


def test_job_accepts_farther_gpus_beyond_each_threshold_and_placement_resets_the_counter(
    stage: Stage,
) -> None:
    a = far_from_data(stage)
    policy = GreedyDelay(threshold1=3.0, threshold2=5.0)
    counters = []
    for _ in range(2):
        plan = stage.plan(policy)
        assert not plan.starts
        ((job, count),) = plan.memo["skips"].items()
        counters.append(count)
        assert job == a
        stage.state.write_memo({"skips": {"a": count}})
    assert counters == [3, 4], "the counter starts at the two GPUs that the job lacks"
    plan = stage.plan(policy)  # beyond threshold 1: the rack is accepted, and the counter reset
    assert stage.where(plan) == ["a/0 same-rack.0"]
    assert plan.memo == {"skips": {a: 2}}, "it then lacks one GPU, and declines the one elsewhere"
    stage.state.write_memo({"skips": {"a": 6}})
    plan = stage.plan(policy)  # beyond threshold 2: any GPU is accepted
    assert stage.where(plan)[0] == "a/0 same-rack.0"
    stage.run(a, 0, 1)
    assert stage.where(stage.plan(policy)) == ["a/1 elsewhere.0"]
    assert stage.plan(policy).memo == {"skips": {a: 0}}


def test_declining_job_waits_with_its_counter_and_prices_as_the_reason(stage: Stage) -> None:
    a = far_from_data(stage)
    plan = stage.plan(GreedyDelay(threshold1=3.0, threshold2=5.0))
    declines = reason(plan, a)
    assert declines == Declines(move_s=3e-3, best_s=1e-3, skips=3, patience=3.0)
    assert str(declines).startswith("Declines(")


def test_gpu_at_a_tasks_least_price_is_not_declined_even_if_it_is_expensive(stage: Stage) -> None:
    a = far_from_data(stage)
    here = stage.node("here", 1, rack="q")
    stage.job("b", [reading(stage.data("big", here, size_bytes=10**6))])
    plan = stage.plan(GreedyDelay())
    assert stage.where(plan) == ["b/0 here.0"], "expensive, but nowhere cheaper"
    assert plan.memo == {"skips": {a: 3}}


def test_declined_gpus_go_to_jobs_that_accept_them(stage: Stage) -> None:
    a = far_from_data(stage)
    stage.job("b", 9)
    plan = stage.plan(GreedyDelay())
    assert stage.where(plan) == ["b/0 same-rack.0", "b/1 elsewhere.0"]
    assert [*plan.memo["skips"]] == [a]


def test_job_at_its_share_declines_no_gpu(stage: Stage) -> None:
    best = stage.node("best", 1)
    stage.node("elsewhere", 1, rack="q")
    a = stage.job("a", [reading(stage.data("d", best)), reading("d")])
    stage.run(a, 0, best)
    b = stage.job(
        "b", [Task(demand=Demand(cpus_milli=1000)), Task(after=(0,))]
    )  # the other GPU is its share
    stage.run(b, 0, best)
    plan = stage.plan(GreedyDelay())
    assert stage.where(plan) == ["a/1 elsewhere.0"]
    assert plan.memo == {"skips": {}}


# --- parameters --------------------------------------------------------------------------------


def test_thresholds_out_of_order_are_rejected() -> None:
    for given in ({"threshold1": 10.0}, {"threshold2": 5}, {"threshold1": 3, "threshold2": 2}):
        with pytest.raises(SpecError, match=r"threshold1 \(\d+\) is not below threshold2"):
            make_policy(KNOWN, "gsd", given)
    assert make_policy(KNOWN, "gsd", {"threshold1": 0, "threshold2": 0.5}).name == "gsd"
