"""The submission check: jobs that can never run are rejected with numbers, others pass."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.policies.ordered.pools import simulated

from headgate.app import POLICIES
from headgate.base.errors import SpecError
from headgate.model import Demand, Gpu, Job, Node, Queue, Task
from headgate.planning.place.submission_check import check_submission, exceeds_queues, fits_no_node
from headgate.policies.ordered.fifo import FirstInFirstOut
from headgate.ports import Parameter, PolicyInfo, make_policy
from headgate.protocol import Reason
from headgate.protocol.queue_reasons import UserTooSmall
from headgate.protocol.reasons import NothingFits, PolicyRefuses, QueueTooSmall

GIB = 1 << 30
NODES = (
    Node(
        id="a",
        rack="r",
        gpus=(
            Gpu(memory_bytes=8 * GIB, model="NVIDIA H100 80GB HBM3"),
            Gpu(memory_bytes=4 * GIB, model="Tesla V100"),
        ),
        cpus=2,
    ),
    Node(id="b", rack="r", gpus=(Gpu(memory_bytes=4 * GIB, model="Tesla V100"),), cpus=4),
)
OPEN = Queue(name="q")


class Choosy(FirstInFirstOut):
    """A policy that places no gangs."""

    def refuses(self, job: Job) -> Reason | None:
        return PolicyRefuses(policy="choosy", what="gangs") if job.gang else None


def job(*tasks: Task, gang: bool = False) -> Job:
    return Job(id="j", name="j", user="ada", queue="q", tasks=tasks, gang=gang)


@pytest.mark.parametrize(
    ("tasks", "gang", "need", "most"),
    [
        ([Task(demand=Demand(gpus=2))], False, None, ""),
        ([Task(demand=Demand(gpus=3))], False, "3 GPUs", "nodes have at most 2 GPUs"),
        ([Task(demand=Demand(gpus=1, gpu_memory_bytes=8 * GIB))], False, None, ""),
        (
            [Task(demand=Demand(gpus=1, gpu_memory_bytes=9 * GIB))],
            False,
            "a GPU with 9 GiB",
            "nodes have at most GPUs with 8 GiB",
        ),
        (
            [Task(demand=Demand(gpus=2, gpu_memory_bytes=5 * GIB))],
            False,
            "2 GPUs with 5 GiB",
            "nodes have at most 1 GPU with 5 GiB",
        ),
        ([Task(demand=Demand(gpus=1, gpu_models=("v100", "h100")))], False, None, ""),
        (
            [Task(demand=Demand(gpus=2, gpu_models=("A100", "L4")))],
            False,
            "2 A100 or L4 GPUs",
            "nodes have no A100 or L4 GPU (but NVIDIA H100 80GB HBM3 and Tesla V100)",
        ),
        (
            [Task(demand=Demand(gpus=2, gpu_models=("H100",)))],
            False,
            "2 H100 GPUs",
            "nodes have at most 1 H100 GPU",
        ),
        (
            [Task(demand=Demand(gpus=1, gpu_models=("v100",), gpu_memory_bytes=8 * GIB))],
            False,
            "1 v100 GPU with 8 GiB",
            "nodes have at most v100 GPUs with 4 GiB",
        ),
        ([Task(demand=Demand(gpus=1, nodes=("a",)))], False, None, ""),
        ([Task(demand=Demand(cpus_milli=4000, nodes=("b",)))], False, None, ""),
        ([Task(demand=Demand(cpus_milli=4000))], False, None, ""),
        ([Task(demand=Demand(cpus_milli=5000))], False, "5 CPUs", "nodes have at most 4 CPUs"),
        (
            [Task(demand=Demand(gpus=1, custom=(("f", 1000),)))],
            False,
            "a GPU and 1 of 'f'",
            "nodes have no 'f'",
        ),
        (
            [Task(demand=Demand(gpus=3, custom=(("f", 1000),)))],
            False,
            "3 GPUs and 1 of 'f'",
            "nodes have at most 2 GPUs and no 'f'",
        ),
        (
            [Task(demand=Demand(gpus=2, cpus_milli=3000))],
            False,
            "2 GPUs and 3 CPUs",
            "no node has all of it together",
        ),
        ([Task(), Task(demand=Demand(gpus=4))], False, "4 GPUs", "nodes have at most 2 GPUs"),
        ([Task()] * 9, False, None, ""),  # one after the other
        ([Task()] * 3, True, None, ""),
    ],
)
def test_a_job_that_no_node_could_hold_is_rejected(
    tasks: list[Task], gang: bool, need: str | None, most: str
) -> None:
    reason = fits_no_node(job(*tasks, gang=gang), NODES)
    if need is None:
        assert reason is None
        return
    assert reason == NothingFits(need=f"{need} on one node", task=len(tasks) - 1, most=most)
    assert reason.detail() == (
        "rejected: no node can satisfy this request; "
        f"needs {need} on one node, {most}: request less, or add such a node"
    )


@pytest.mark.parametrize(
    ("task", "need", "most"),
    [
        (
            Task(demand=Demand(gpus=1, nodes=("b",), gpu_models=("H100",))),
            "1 H100 GPU on b",
            "these nodes have no H100 GPU (but Tesla V100)",
        ),
        (
            Task(demand=Demand(gpus=1, exclude=("a", "b"))),
            "a GPU on one node other than a or b",
            "which is not up",
        ),
        (Task(demand=Demand(gpus=1, nodes=("c", "d"))), "a GPU on c or d", "which is not up"),
        (
            Task(demand=Demand(cpus_milli=4000, exclude=("b",))),
            "4 CPUs on one node other than b",
            "these nodes have at most 2 CPUs",
        ),
    ],
)
def test_job_for_certain_nodes_is_rejected_if_none_of_them_could_hold_it(
    task: Task, need: str, most: str
) -> None:
    assert fits_no_node(job(task), NODES) == NothingFits(need=need, task=0, most=most)


@pytest.mark.parametrize(
    "policy", ["fifo", "easy-backfill", "srtf", "headgate", "fs", "gs", "fair"]
)
def test_gang_whose_largest_task_comes_last_starts_where_it_fits(policy: str) -> None:
    nodes = [Node(id=f"n{gpus}", rack="r", gpus=(Gpu(memory_bytes=0),) * gpus) for gpus in (2, 1)]
    gang = job(Task(demand=Demand(gpus=1)), Task(demand=Demand(gpus=2)), gang=True)
    assert fits_no_node(gang, nodes) is None
    submitted = [(0.0, replace(gang, id="0"))]
    starts = simulated(2, submitted, make_policy(POLICIES, policy), others=(1,))
    assert starts == {0: [0.0, 0.0]}


@pytest.mark.parametrize(
    ("task", "count", "largest"),
    [
        (Task(), 4, 3),
        (Task(demand=Demand(gpus=1, gpu_memory_bytes=5 * GIB)), 2, 1),
        (Task(demand=Demand(gpus=2)), 2, 1),
    ],
)
def test_gang_that_can_never_fit_is_rejected_with_the_largest_that_would(
    task: Task, count: int, largest: int
) -> None:
    total = count * task.demand.gpus
    assert fits_no_node(job(*[task] * largest, gang=True), NODES) is None
    assert fits_no_node(job(*[task] * count, gang=True), NODES) == NothingFits(
        need=f"{count} tasks with {total} GPUs together (a gang)", largest=largest
    )


@pytest.mark.parametrize(
    ("task", "largest"),
    [
        (Task(), 2),
        (Task(demand=Demand(gpus=2)), 1),
        (Task(demand=Demand(gpus=1, gpu_memory_bytes=5 * GIB)), 1),
        (Task(demand=Demand(cpus_milli=1000)), 2),
    ],
)
def test_gang_on_more_nodes_than_fit_a_member_is_rejected_with_the_largest_that_would(
    task: Task, largest: int
) -> None:
    def apart(count: int) -> Job:
        return replace(job(*[task] * count, gang=True), distinct_nodes=True)

    assert fits_no_node(apart(largest), NODES) is None
    reason = fits_no_node(apart(largest + 1), NODES)
    assert reason is not None
    assert reason.largest == largest
    assert reason.cause() == "rejected: the cluster cannot satisfy this request"
    assert reason.way_out().endswith(f", at most {largest} fit: request less, or add nodes")


def test_tasks_that_run_together_must_fit_the_ceiling_of_the_queue() -> None:
    poor = Queue(name="poor", max_gpus=2)
    assert (
        exceeds_queues(job(Task(demand=Demand(gpus=2)), Task(demand=Demand(gpus=2))), [poor])
        is None
    )
    wide = job(Task(demand=Demand(gpus=1)), Task(demand=Demand(gpus=2)), gang=True)
    assert exceeds_queues(wide, [poor]) == QueueTooSmall(queue="poor", needed_gpus=3, max_gpus=2)
    assert exceeds_queues(wide, [OPEN]) is None


def test_tasks_that_run_together_must_fit_what_a_queue_or_one_above_allows_each_user() -> None:
    top = Queue(name="top", per_user=(("cpus", 4000), ("gpus", 3000)))
    lab = Queue(name="lab", parent="top", per_user=(("gpus", 2000),))
    pair = job(*[Task(demand=Demand(gpus=1, cpus_milli=2000))] * 2, gang=True)
    assert exceeds_queues(pair, [lab, top]) is None
    wide = job(*[Task(demand=Demand(gpus=1))] * 3, gang=True)
    assert exceeds_queues(replace(wide, gang=False), [lab, top]) is None
    assert exceeds_queues(wide, [top]) is None
    found = exceeds_queues(wide, [lab, top])
    assert found == UserTooSmall(queue="lab", resource="gpus", needed=3000, limit=2000)
    assert found.cause() == "rejected: needs 3 GPUs, 2 per user in queue lab"
    assert found.way_out() == "request at most 2, use another queue, or raise its per_user"
    many = job(Task(demand=Demand(cpus_milli=4500)))
    found = exceeds_queues(many, [lab, top])
    assert found == UserTooSmall(queue="top", resource="cpus", needed=4500, limit=4000)


def test_the_policy_is_checked_first_and_nodes_only_if_any_is_up() -> None:
    gang = job(Task(demand=Demand(gpus=9)), Task(), gang=True)
    assert check_submission(gang, [OPEN], NODES, Choosy()) == PolicyRefuses(
        policy="choosy", what="gangs"
    )
    assert isinstance(check_submission(gang, [OPEN], NODES, FirstInFirstOut()), NothingFits)
    assert check_submission(gang, [OPEN], (), FirstInFirstOut()) is None


@given(
    gpus=st.integers(0, 4),
    memory=st.integers(0, 9),
    cpus=st.none() | st.sampled_from((0.5, 1.0, 2.0, 2.5, 4.0, 5.0)),
)
def test_a_single_task_passes_exactly_when_some_idle_node_fits_it(
    gpus: int, memory: int, cpus: float | None
) -> None:
    task = Task(demand=Demand.of(gpus=gpus, gpu_memory_bytes=memory * GIB, cpus=cpus))
    slots = cpus if cpus is not None else 0 if gpus else 1
    holds = any(
        sum(g.memory_bytes >= memory * GIB for g in n.gpus) >= gpus and n.cpus >= slots
        for n in NODES
    )
    assert (fits_no_node(job(task), NODES) is None) == holds


# --------------------------------------------------------------------------------- policies by name


KNOWN = {
    "one": PolicyInfo(
        name="one",
        idea="",
        source="",
        parameters=(Parameter(name="alpha", default=2.0, unit="1", meaning="a price", above=1.0),),
        make=lambda **given: given,
    )
}


def test_a_policy_is_made_with_the_parameters_given() -> None:
    assert make_policy(KNOWN, "one", {"alpha": 3}) == {"alpha": 3}
    assert make_policy(KNOWN, "one") == {}


@pytest.mark.parametrize(
    ("name", "parameters", "problem"),
    [
        ("oone", {}, "policy: there is no policy 'oone'; did you mean 'one'?"),
        ("one", {"alpa": 3}, "policy.alpa: policy one has no parameter 'alpa'; did you mean"),
        ("one", {"alpha": 1}, "policy.alpha: 1 is not above 1; default 2.0: a price"),
        ("one", {"alpha": True}, "policy.alpha: True is not a finite number"),
        ("one", {"alpha": float("nan")}, "policy.alpha: nan is not a finite number"),
    ],
)
def test_a_wrong_name_or_parameter_is_reported_with_its_place(
    name: str, parameters: dict[str, object], problem: str
) -> None:
    with pytest.raises(SpecError) as wrong:
        make_policy(KNOWN, name, parameters)
    assert str(wrong.value).startswith(problem)
