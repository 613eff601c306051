"""Queues files: the tree that they give, and every problem of those that are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.base.errors import SpecError
from headgate.model import Queue
from headgate.spec import load_scenario
from headgate.spec.queues import load_queues

TREE = """
queues:
- name: vision
  weight: 2
  limit: {gpus: 16, cpus: 12.5, memory: 64GiB, licence: 3}
  per_user: {gpus: 4, cpus: 2.5, memory: 1GiB, licence: 1}
  labels: [ml]
  queues:
  - {name: training, types: [deep-learning], max_gpus: 8}
  - {name: interactive, state: closed, guaranteed: {gpus: 4}, borrow_limit: {gpus: 2}, lend: false}
- name: batch
  types: [batch]
  max_jobs_in_flight: 20
  estimate: declared
  grace: 5s
  min_run: 1min
"""


def problems(text: str) -> list[str]:
    with pytest.raises(SpecError) as refused:
        load_queues(text)
    return [str(problem) for problem in refused.value.problems]


def test_a_file_gives_a_tree_each_queue_after_the_one_above_it() -> None:
    limit = (("cpus", 12_500), ("licence", 3000), ("memory", 64 << 30))
    each = (("cpus", 2500), ("gpus", 4000), ("licence", 1000), ("memory", 1 << 30))
    assert load_queues(TREE) == (
        Queue(name="vision", weight=2.0, max_gpus=16, limit=limit, per_user=each, labels=("ml",)),
        Queue(name="training", parent="vision", types=("deep-learning",), max_gpus=8),
        Queue(
            name="interactive",
            parent="vision",
            state="closed",
            guaranteed=(("gpus", 4000),),
            borrow_limit=(("gpus", 2000),),
            lend=False,
        ),
        Queue(
            name="batch",
            types=("batch",),
            max_jobs_in_flight=20,
            estimate="declared",
            grace_s=5.0,
            min_run_s=60.0,
        ),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[]", "queues (line 1): must be a list of queues"),
        ("[{name: a, weight: 0}]", "queues[0].weight (line 1): must be at least 1e-06, not 0"),
        (
            "[{name: a, grace: 1h}]",
            "queues[0].grace (line 1): must be a duration of at most 10 min, not '1h'",
        ),
        ("[{name: a, weight: -1}]", "queues[0].weight (line 1): must be at least 1e-06, not -1"),
        (
            "[{name: a, queues: [{name: a}]}]",
            "queues[0].queues[0].name (line 1): the queue 'a' exists already",
        ),
        (
            "[{name: a, guaranteed: {gpus: 1}, queues: [{name: a, guaranteed: {gpus: 1}}]}]",
            "queues[0].queues[0].name (line 1): the queue 'a' exists already",
        ),
        (
            "[{name: a, max_gpus: 2, limit: {gpus: 3}}]",
            "queues[0].limit.gpus (line 1): is given by max_gpus already",
        ),
        ("[{name: a, limit: 3}]", "queues[0].limit (line 1): must be amounts by kind, not 3"),
        (
            "[{name: a, limit: {cpus: -1}}]",
            "queues[0].limit.cpus (line 1): must be a number above",
        ),
        (
            "[{name: a, limit: {gpus: 1.5}}]",
            "queues[0].limit.gpus (line 1): must be a whole",
        ),
        ("[{name: a, per_user: 3}]", "queues[0].per_user (line 1): must be amounts by kind, not 3"),
        (
            "[{name: a, per_user: {cpus: 0}}]",
            "queues[0].per_user.cpus (line 1): must be a number above 0",
        ),
        (
            "[{name: a, per_user: {gpus: -1}}]",
            "queues[0].per_user.gpus (line 1): must be ",
        ),
        (
            "[{name: a, per_user: {licence: x}}]",
            "queues[0].per_user.licence",
        ),
        (
            "[{name: a, per_user: {gpus: 4}, max_gpus: 3}]",
            "queues[0].per_user (line 1): is 4 gpus, above the limit of 3 gpus",
        ),
        (
            "[{name: a, per_user: {memory: 2GiB}, limit: {memory: 1GiB}}]",
            "queues[0].per_user (line 1): is 2 GiB of memory, above the limit of 1 GiB",
        ),
        (
            "[{name: a, types: [x]}, {name: b, types: [x]}]",
            "queues[1].types (line 1): queue 'a' takes jobs of type 'x' already",
        ),
        (
            "[{name: a, types: [x], queues: [{name: b}]}]",
            "queues[0].types (line 1): is for queues that jobs wait in",
        ),
        (
            "[{name: default, queues: [{name: b}]}]",
            "queues[0].queues (line 1): takes the jobs that name no queue",
        ),
        (
            "[{name: a, guaranteed: {gpus: 4}, max_gpus: 3}]",
            "queues[0].guaranteed (line 1): is 4 gpus, above the limit of 3 gpus",
        ),
        (
            "[{name: a, max_gpus: 3, queues: [{name: b, guaranteed: {gpus: 4}}]}]",
            "queues[0].guaranteed (line 1): is 4 gpus, above the limit of 3 gpus",
        ),
        (
            "[{name: a, guaranteed: {gpus: 1}, queues: [{name: b, guaranteed: {gpus: 4}}]}]",
            "queues[0].guaranteed (line 1): is 1 gpus, less than the 4 gpus of those below it",
        ),
        ("[{name: a, lend: maybe}]", "queues[0].lend (line 1): must be true or false"),
        ("[{name: a, state: shut}]", "queues[0].state (line 1): must be "),
        ("[{name: a, labels: ['x y']}]", "queues[0].labels (line 1): must be labels"),
        ("[{name: a, wieght: 1}]", "queues[0].wieght (line 1): unknown key 'wieght'"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(text: str, expected: str) -> None:
    found = problems(f"queues: {text}")
    assert any(each.startswith(expected) for each in found), found


def test_all_problems_are_named() -> None:
    text = "queues: [{name: a, weight: 0, queues: [{name: a, limit: 3}]}]\nqueue: 1"
    assert len(problems(text)) == 4


SCENARIO = """
cluster:
  racks: [{name: r, nodes: 1, node: {gpus: 2, gpu_memory: 1GB}}]
  bandwidths: {disk_bytes_per_s: 1, node_link_bytes_per_s: 1, rack_uplink_bytes_per_s: 1}
policy: fifo
queues:
- {name: team, queues: [{name: deep, types: [deep-learning]}, {name: shut, state: closed}]}
"""


def scenario(tmp_path: Path, jobs: str) -> list[str]:
    """Return the queues of the jobs of a scenario, or its problems."""
    file = tmp_path / "scenario.yaml"
    file.write_text(f"{SCENARIO}jobs: {jobs}\n")
    try:
        loaded = load_scenario(file, {"fifo": ()})
    except SpecError as error:
        return [str(problem) for problem in error.problems]
    return [job.queue for _, job in loaded.submissions]


def test_a_job_of_a_scenario_finds_its_queue_by_its_type(tmp_path: Path) -> None:
    tasks = "tasks: [{compute_s: 1}]"
    jobs = f"[{{name: a, type: deep-learning, {tasks}}}, {{name: b, {tasks}}}]"
    assert scenario(tmp_path, jobs) == ["deep", "default"]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("type: deep", "jobs[0].type (line 8): no queue takes jobs of type 'deep'"),
        (
            "type: deep-learning, queue: deep",
            "jobs[0].type (line 8): is for jobs that name no",
        ),
        ("queue: team", "jobs[0].queue (line 8): queue 'team' is divided, and takes no jobs"),
        ("queue: shut", "jobs[0].queue (line 8): queue 'shut' is closed, and takes no new jobs"),
        ("queue: dep", "jobs[0].queue (line 8): unknown queue 'dep'; did you mean 'deep'?"),
    ],
)
def test_a_job_in_no_queue_that_takes_it_is_rejected(
    tmp_path: Path, keys: str, expected: str
) -> None:
    (found,) = scenario(tmp_path, f"[{{name: a, {keys}, tasks: [{{compute_s: 1}}]}}]")
    assert found.startswith(expected)
