"""Jobs that come after others, at their submission: which these are, and which are rejected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live.controller.test_submission import JOB, ME, OTHER, running

from headgate.api.archived import record_of
from headgate.base.errors import SpecError
from headgate.live.controller.controller import Controller
from headgate.model import Gpu, Job, Node, RunId
from headgate.protocol import Admitted, JobsArchived, NodeJoined, PlanAdmitted, TaskFinished
from headgate.state import JobState


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    with running(tmp_path) as found:
        found.world.submit = lambda commands, snapshot: None  # type: ignore[method-assign]  # no Ray
        yield found


def spec(controller: Controller, job: str) -> Job:
    view = controller.snapshot()
    return view.job(view.names.job_rows[job])


def test_job_comes_after_those_of_its_file_and_of_the_request_that_have_not_finished(
    controller: Controller,
) -> None:
    one, two = (controller.submit(JOB, user=ME, key=None) for _ in range(2))
    text = f"{{name: late, run: 'true', after: [{one}]}}"
    late = controller.submit(text, user=OTHER, key=None, after=[two, one])
    assert spec(controller, late).after == (one, two)
    assert controller.check(text, user=ME, after=[late])


@pytest.mark.parametrize("archived", [False, True])
def test_job_after_a_finished_one_does_not_wait(controller: Controller, archived: bool) -> None:
    job = controller.submit(JOB, user=ME, key=None)
    finish(controller, job)
    if archived:
        archive(controller, job)
    late = controller.submit(JOB, user=ME, key=None, after=[job])
    assert spec(controller, late).after == ()
    assert state_of(controller, late) == JobState.ACTIVE


@pytest.mark.parametrize("archived", [False, True])
def test_job_after_a_cancelled_one_is_rejected(controller: Controller, archived: bool) -> None:
    job = controller.submit(JOB, user=ME, key=None)
    controller.cancel(job, user=ME)
    if archived:
        archive(controller, job)
    with pytest.raises(SpecError, match="was cancelled: a job after it can never start") as refused:
        controller.submit(f"{{run: 'true', after: {job}}}", user=ME, key=None)
    assert refused.value.code == "rejected"
    (problem,) = refused.value.problems
    assert (problem.path, problem.hint) == (
        "after[0]",
        f"headgate get {job} shows why; submit it again, and name its new id",
    )


def test_all_unknown_jobs_are_reported_with_the_nearest(controller: Controller) -> None:
    controller.submit(JOB, user=ME, key=None)
    with pytest.raises(SpecError) as refused:
        controller.submit(JOB, user=ME, key=None, after=["work-l", "x" * 300])
    assert [str(problem) for problem in refused.value.problems] == [
        "after[0]: there is no job 'work-l'; did you mean 'work-1'?",
        f"after[1]: there is no job '{'x' * 97}...'; headgate jobs --all lists them",
    ]
    assert controller.submit(JOB, user=ME, key=None) == "work-2"  # no number was lost


def finish(controller: Controller, job: str) -> None:
    """Let the one task of a job run to its end on a node that joins for it."""
    at, run = controller.now(), RunId(job, 0, 1)
    node = Node(id="n", rack="r", gpus=(Gpu(memory_bytes=1),))
    start = PlanAdmitted(at=at, starts=(Admitted(run, "n", (0,)),))
    controller._handle([NodeJoined(at=at, node=node), start, TaskFinished(at=at, run=run)])
    assert state_of(controller, job) == JobState.FINISHED


def state_of(controller: Controller, job: str) -> int:
    view = controller.snapshot()
    found: int = view.jobs.state[view.names.job_rows[job]]
    return found


def archive(controller: Controller, job: str) -> None:
    """Move an ended job to the archive."""
    view = controller.snapshot()
    controller.archive.add([record_of(view, view.names.job_rows[job])])
    controller._handle([JobsArchived(at=controller.now(), jobs=(job,))])
