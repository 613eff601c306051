"""Valid scenario files: nodes, shards, jobs, queues and faults as values."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headgate.model import Bandwidth, Demand, Gpu, Node, Queue, Shard, Task
from headgate.protocol import NodeJoined, NodeLost
from headgate.spec import Links, Scenario, load_scenario

CLUSTER = """\
cluster:
  racks:
    - name: a
      nodes: [{name: n1, gpus: 1, gpu_memory: 10GB}, {name: n2, gpus: 1, gpu_memory: 10GB}]
    - {name: b, nodes: 3, node: {gpus: 2, gpu_memory: 16GiB, gpu_model: T4, cpus: 8}}
  bandwidths:
    disk_bytes_per_s: 400MB
    node_link_bytes_per_s: 125MB
    rack_uplink_bytes_per_s: 150e6
policy: fs
"""


def load(tmp_path: Path, text: str) -> Scenario:
    file = tmp_path / "scenario.yaml"
    file.write_text(text)
    return load_scenario(file, {"fs": ["alpha1"], "fifo": []})


def with_jobs(tmp_path: Path, jobs: str) -> Scenario:
    return load(tmp_path, f"{CLUSTER}jobs:\n{jobs}")


ONE = "  - {name: one, tasks: [{compute_s: 1}]}\n"


def test_nodes_are_in_the_order_of_the_file_and_equal_ones_are_numbered(tmp_path: Path) -> None:
    t4 = Gpu(memory_bytes=16 * 2**30, model="T4")
    assert with_jobs(tmp_path, ONE).nodes == (
        Node(id="n1", rack="a", gpus=(Gpu(memory_bytes=10**10),), cpus=4),
        Node(id="n2", rack="a", gpus=(Gpu(memory_bytes=10**10),), cpus=4),
        *(Node(id=f"b-n{i}", rack="b", gpus=(t4, t4), cpus=8) for i in (1, 2, 3)),
    )


def test_expected_bandwidths_are_a_nodes_part_of_the_links(tmp_path: Path) -> None:
    scenario = with_jobs(tmp_path, ONE)
    assert scenario.links == Links(
        disk_bytes_per_s=400e6, node_link_bytes_per_s=125e6, rack_uplink_bytes_per_s=150e6
    )
    assert scenario.bandwidth == Bandwidth(
        disk_bytes_per_s=400e6, rack_bytes_per_s=125e6, cluster_bytes_per_s=50e6
    )
    core = CLUSTER.replace("150e6", "150e6\n    aggregation_bytes_per_s: 100MB")
    assert load(tmp_path, f"{core}jobs:\n{ONE}").bandwidth.cluster_bytes_per_s == 20e6


def test_given_estimates_are_used(tmp_path: Path) -> None:
    given = (
        "  estimates: {disk_bytes_per_s: 3, rack_bytes_per_s: 2, cluster_bytes_per_s: 1}\npolicy"
    )
    scenario = load(tmp_path, CLUSTER.replace("policy", given) + f"jobs:\n{ONE}")
    assert scenario.bandwidth == Bandwidth(
        disk_bytes_per_s=3, rack_bytes_per_s=2, cluster_bytes_per_s=1
    )


def test_shards_of_one_name_are_one_and_add_up_their_replicas(tmp_path: Path) -> None:
    scenario = with_jobs(
        tmp_path,
        "  - name: x\n    tasks:\n"
        "      - compute_s: 1\n        shards:\n"
        "          - {name: d, size_bytes: 10, replicas: [n1]}\n"
        "          - {size_bytes: 20, replicas: [n2]}\n"
        "  - name: y\n    tasks:\n"
        "      - {compute_s: 1, shards: [{name: d, size_bytes: 10, replicas: [b-n1, n1]}]}\n"
        "      - {compute_s: 1, shards: [{name: shared, size_bytes: 5}]}\n",
    )
    d, own, shared = (
        Shard(id="d", size_bytes=10),
        Shard(id="x/0/1", size_bytes=20),
        Shard(id="shared", size_bytes=5),
    )
    assert scenario.replicas == ((d, "n1"), (own, "n2"), (d, "b-n1"))
    (_, x), (_, y) = scenario.submissions
    assert (x.shards, y.shards) == ((d, own), (d, shared))
    assert x.tasks[0].reads == ("d", "x/0/1")


def test_tasks_wait_for_others_by_name_or_index_and_read_their_results(tmp_path: Path) -> None:
    scenario = with_jobs(
        tmp_path,
        "  - name: x\n    tasks:\n"
        "      - {name: sum, compute_s: 1, gpus: 0, cpus: 2, after: [2, left], "
        "reads_results: true}\n"
        "      - {name: left, compute_s: 2, output_bytes: 1kB}\n"
        "      - {compute_s: 3, gpu_memory: 1GB, after: [left]}\n",
    )
    ((_, job),) = scenario.submissions
    assert job.tasks == (
        Task(after=(2, 1), reads=("x/2", "x/1"), demand=Demand(cpus_milli=2000), compute_s=1),
        Task(compute_s=2, output_bytes=1000),
        Task(compute_s=3, demand=Demand(gpus=1, gpu_memory_bytes=10**9), after=(1,)),
    )
    assert scenario.task_names == {"x": ("sum", "left", "x/2")}


def test_num_nodes_is_a_gang_whose_one_task_runs_on_each_of_several_nodes(tmp_path: Path) -> None:
    shard = "shards: [{name: d, size_bytes: 5}]"
    task = f"{{compute_s: 9, gpus: 2, output_bytes: 3, {shard}}}"
    scenario = with_jobs(tmp_path, f"  - {{name: a, num_nodes: 3, tasks: [{task}]}}\n")
    ((_, job),) = scenario.submissions
    assert (job.gang, job.distinct_nodes) == (True, True)
    assert (
        job.tasks == (Task(compute_s=9, demand=Demand(gpus=2), output_bytes=3, reads=("d",)),) * 3
    )
    assert scenario.task_names["a"] == ("a/0", "a/1", "a/2")
    one = with_jobs(tmp_path, "  - {name: a, gang: true, num_nodes: 1, tasks: [{compute_s: 1}]}\n")
    ((_, job),) = one.submissions
    assert (len(job.tasks), job.gang, job.distinct_nodes) == (1, True, True)


def test_submissions_are_ordered_by_time_then_by_place_in_the_file(tmp_path: Path) -> None:
    lines = [("late", 5), ("b", 1), ("a", 1), ("first", 0)]
    jobs = "".join(
        f"  - {{name: {name}, submit_s: {at}, user: u, priority: 3, tasks: [{{compute_s: 1}}]}}\n"
        for name, at in lines
    )
    submitted = with_jobs(tmp_path, jobs).submissions
    assert [(at, job.id, job.user, job.priority) for at, job in submitted] == [
        (0, "first", "u", 3),
        (1, "b", "u", 3),
        (1, "a", "u", 3),
        (5, "late", "u", 3),
    ]


EACH = "  - name: big\n    for_each: {count: 50, compute_s: 2, size_bytes: 64MiB, replicas: 3}\n"


def test_for_each_places_replicas_on_different_nodes_under_the_seed(tmp_path: Path) -> None:
    def places(seed: int) -> dict[str, list[str]]:
        scenario = load(tmp_path, f"{CLUSTER}seed: {seed}\njobs:\n{EACH}")
        found: dict[str, list[str]] = {}
        for shard, node in scenario.replicas:
            assert shard.size_bytes == 64 * 2**20
            found.setdefault(shard.id, []).append(node)
        assert [task.reads for task in scenario.submissions[0][1].tasks] == [(s,) for s in found]
        return found

    assert places(1) == places(1) != places(2)
    assert len(places(1)) == 50
    assert all(len(set(nodes)) == 3 for nodes in places(1).values())
    assert {node for nodes in places(1).values() for node in nodes} == {
        "n1", "n2", "b-n1", "b-n2", "b-n3",
    }  # fmt: skip


def test_a_scenario_is_the_same_under_any_hash_seed(tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(f"{CLUSTER}seed: 7\njobs:\n{EACH}{ONE}")
    program = (
        "import sys; from headgate.spec import load_scenario; "
        "print(load_scenario(sys.argv[1], {'fs': []}))"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program, str(file)],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1] != b""


def test_default_queue_is_always_there(tmp_path: Path) -> None:
    queues = "queues: [{name: q, weight: 2.5, max_gpus: 4, max_jobs_in_flight: 6}]\n"
    assert with_jobs(tmp_path, ONE).queues == (Queue(name="default"),)
    assert with_jobs(tmp_path, ONE + queues).queues == (
        Queue(name="q", weight=2.5, max_gpus=4, max_jobs_in_flight=6),
        Queue(name="default"),
    )


def test_faults_are_events_in_order_of_time(tmp_path: Path) -> None:
    scenario = with_jobs(
        tmp_path,
        f"{ONE}faults:\n  - {{at_s: 9, join: n1}}\n  - {{at_s: 2.5, lose: n1}}\n"
        "  - {at_s: 9, lose: n1}\n",
    )
    assert scenario.faults == (
        NodeLost(at=2.5, node="n1"),
        NodeJoined(at=9, node=scenario.nodes[0]),
        NodeLost(at=9, node="n1"),
    )


def test_a_policy_may_bring_parameters(tmp_path: Path) -> None:
    text = CLUSTER.replace("policy: fs", "policy: {name: fs, alpha1: 2}\ndecision_latency_s: 0.01")
    scenario = load(tmp_path, f"{text}jobs:\n{ONE}")
    assert (scenario.policy, scenario.parameters) == ("fs", {"alpha1": 2})
    assert scenario.decision_latency_s == 0.01


def test_trace_path_is_relative_to_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "jobs.parquet").write_bytes(b"")
    scenario = load(tmp_path, f"{CLUSTER}trace: jobs.parquet\n")
    assert (scenario.trace, scenario.submissions) == (tmp_path / "jobs.parquet", ())


@pytest.mark.parametrize("text", ["no", "on", "yes", "12:30:00", "1_000", "2026-01-01", "NO"])
def test_words_with_a_meaning_in_older_yaml_are_text(tmp_path: Path, text: str) -> None:
    scenario = with_jobs(
        tmp_path, f"  - name: {text.replace(':', '-')}\n    tasks: [{{compute_s: 1}}]\n"
    )
    assert scenario.submissions[0][1].name == text.replace(":", "-")


def test_anchors_save_typing(tmp_path: Path) -> None:
    scenario = with_jobs(
        tmp_path,
        "  - {name: x, tasks: &two [{compute_s: 1}, {compute_s: 2}]}\n  - {name: y, tasks: *two}\n",
    )
    assert scenario.submissions[0][1].tasks == scenario.submissions[1][1].tasks


def test_a_policy_given_beside_the_file_has_its_own_parameters(tmp_path: Path) -> None:
    text = f"{CLUSTER}jobs:\n{ONE}".replace("policy: fs", "policy: {name: fs, alpha1: 2.5}")
    file = tmp_path / "scenario.yaml"
    file.write_text(text)

    def parameters(**given: Any) -> Any:
        return load_scenario(file, {"fs": ["alpha1"], "fifo": []}, **given).parameters

    assert parameters() == parameters(policy="fs") == {"alpha1": 2.5}
    assert parameters(policy="fs", parameters={"alpha1": 3.0}) == {"alpha1": 3.0}
    assert parameters(policy="fifo") == {}


def test_job_comes_after_others_and_limits_its_tasks_but_not_those_that_reduce(
    tmp_path: Path,
) -> None:
    form = "for_each: {count: 5, size_bytes: 1, compute_s: 1, reduce: {tasks: 2, compute_s: 1}}"
    text = (
        ONE + "  - {name: two, submit_s: 3, after: one, max_running: 3, tasks: [{compute_s: 1}]}\n"
    )
    text += f"  - {{name: three, submit_s: 3, after: [two, one], max_running: 2, {form}}}\n"
    _, two, three = (job for _, job in with_jobs(tmp_path, text).submissions)
    assert (two.after, two.max_running, two.limited_tasks) == (("one",), 3, None)
    assert (three.after, three.max_running, three.limited_tasks) == (("two", "one"), 2, 5)
    assert [three.is_limited(ordinal) for ordinal in range(7)] == [True] * 5 + [False] * 2
