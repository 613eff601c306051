"""Jobs and the tree of queues in a real controller: types, states, users, limits, restarts.

There is no Ray: the queues are stopped, so that no run starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live.controller.test_submission import ME, running

from headgate.base.errors import SpecError
from headgate.live.controller.controller import Controller
from headgate.model import Gpu, Node
from headgate.protocol import NodeJoined
from headgate.spec.queues import load_queues
from headgate.state.queues import in_tree

TREE = f"""
queues:
- {{name: default, state: stopped}}
- name: lab
  state: stopped
  labels: [ml]
  max_time: 4h
  queues:
  - {{name: deep, types: [deep-learning], max_gpus: 2}}
  - {{name: shut, state: closed}}
  - {{name: theirs, users: [bob, ann]}}
  - {{name: mine, admins: [{ME}], users: [bob]}}
"""


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    with running(tmp_path) as controller:
        gpus = (Gpu(memory_bytes=1 << 30),) * 4
        for name, labels in (("n0", ("ml",)), ("n1", ())):
            node = Node(id=name, rack="r", gpus=gpus, cpus=8, labels=labels)
            controller._handle([NodeJoined(at=controller.now(), node=node)])
        controller.administration.set_queues(load_queues(TREE), user="root")
        yield controller


def names(controller: Controller) -> list[str]:
    view = controller.snapshot()
    return [view.queue(row).name for row in in_tree(view)]


def queue_of(controller: Controller, text: str) -> str:
    job = controller.submit(text, user=ME, key=None)
    return controller.snapshot().job(controller.snapshot().names.job_rows[job]).queue


def test_a_job_is_in_the_queue_that_takes_its_type(controller: Controller) -> None:
    assert queue_of(controller, "{run: x, type: deep-learning}") == "deep"
    assert queue_of(controller, "{run: x}") == "default"
    assert queue_of(controller, "{run: x, queue: mine}") == "mine", "an admin of it is a user"


@pytest.mark.parametrize(
    ("text", "code", "path", "problem"),
    [
        ("{run: x, type: deep}", "bad_spec", "type", "no queue takes jobs of type 'deep'"),
        ("{run: x, queue: lab}", "bad_spec", "queue", "queue 'lab' is divided, and takes no jobs"),
        ("{run: x, queue: shut}", "bad_spec", "queue", "queue 'shut' is closed"),
        ("{run: x, queue: theirs}", "forbidden", "queue", "permission denied: queue 'theirs' is"),
        (
            "{run: x, queue: deep, time_limit: 5h}",
            "bad_spec",
            "time_limit",
            "is 5 h; queue 'lab' allows 4 h",
        ),
        (
            "{run: x, queue: deep, resources: {gpus: 3}}",
            "infeasible",
            "queue",
            "rejected: needs 3 GPUs",
        ),
        (
            "{run: x, queue: deep, nodes: n1}",
            "infeasible",
            "resources",
            "rejected: no node can satisfy",
        ),
    ],
)
def test_a_job_that_its_queue_does_not_take_is_rejected(
    controller: Controller, text: str, code: str, path: str, problem: str
) -> None:
    with pytest.raises(SpecError) as refused:
        controller.submit(text, user=ME, key=None)
    (found,) = refused.value.problems
    assert (refused.value.code, found.path.split("[")[0]) == (code, path), found
    assert found.problem.startswith(problem)


def test_a_job_without_a_time_limit_gets_that_of_its_queue(controller: Controller) -> None:
    job = controller.submit("{run: x, queue: deep}", user=ME, key=None)
    row = controller.snapshot().names.job_rows[job]
    assert controller.snapshot().job(row).time_limit_s == 4 * 3600
    shorter = controller.submit("{run: x, queue: deep, time_limit: 1h}", user=ME, key=None)
    row = controller.snapshot().names.job_rows[shorter]
    assert controller.snapshot().job(row).time_limit_s == 3600


def test_jobs_move_only_to_queues_that_are_for_their_users(controller: Controller) -> None:
    controller.admins = frozenset({"root"})
    job = controller.submit("{run: x}", user=ME, key=None)
    with pytest.raises(SpecError) as refused:
        controller.administration.assign(job, "theirs", user=ME)
    assert refused.value.code == "forbidden"
    controller.administration.assign(job, "mine", user=ME)
    with pytest.raises(SpecError):
        controller.administration.assign(job, "default", user="ann")
    controller.administration.assign(job, "theirs", user="root")


def test_queues_that_were_applied_stay_when_the_controller_starts_again(tmp_path: Path) -> None:
    with running(tmp_path) as controller:
        controller.administration.set_queues(load_queues(TREE), user="root")
        before = names(controller)
        assert {"lab", "deep", "shut"} <= {*before}
    with running(tmp_path) as controller:
        assert names(controller) == before
