"""Submission, removal and cancellation on a real engine and journal, without any node."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.api.absurd_input import checked, requests

from headgate.api.address import socket_path
from headgate.api.app import make_app
from headgate.api.archived import record_of
from headgate.api.server import Server, listen
from headgate.app import POLICIES
from headgate.base.errors import HeadgateError, SpecError, WorldError
from headgate.live.base.config import ControllerConfig
from headgate.live.controller.controller import Controller
from headgate.live.data.claims import DatasetClaims
from headgate.live.node.store import StoredShard
from headgate.model import Dataset, Gpu, Node, Queue, Shard
from headgate.ports import choose_policy
from headgate.protocol import DatasetAdded, JobCancelled, NodeJoined, QueueChanged
from headgate.state.life import ENDED

JOB = "{name: work, run: 'true'}"
READS = "{name: work, data: {d: {from: ints}}, tasks: {for_each: d, run: 'cat {shard}'}}"
ME, OTHER = "daemon", "nobody"  # users that every Debian has


@contextmanager
def running(state: Path) -> Iterator[Controller]:
    """A controller with a running engine, without Ray."""
    controller = Controller(
        state=state,
        config=ControllerConfig(policy="fifo", ray_address="", foreign=True, spares=0),
        policies=partial(choose_policy, POLICIES, "fifo", {}),
        record_of=record_of,
    )
    controller._thread.start()
    controller._set_queues(controller.snapshot())
    try:
        yield controller
    finally:
        controller.stop()


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    with running(tmp_path) as found:
        yield found


def add(controller: Controller, name: str = "ints", user: str = ME) -> None:
    """Add a dataset of one shard without replicas."""
    shard = Shard(id=f"{name}:00000", size_bytes=1)
    dataset = Dataset(name=name, user=user, shards=(shard,))
    controller._handle([DatasetAdded(at=controller.now(), dataset=dataset)])


def code_of(call: Any) -> str:
    """Return how a call ends."""
    try:
        call()
    except HeadgateError as error:
        return error.code
    return "done"


class Gate:
    """Blocks the engine's thread between two batches, so that posted events stay unhandled."""

    def __init__(self, controller: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
        self._opened, self._reached = threading.Event(), threading.Event()
        record = controller._durable.record

        def held(inbox: Any, batch: Any) -> Any:
            self._reached.set()
            assert self._opened.wait(60)
            return record(inbox, batch)

        monkeypatch.setattr(controller._durable, "record", held)

    def wait(self) -> None:
        """Wait until something has been posted."""
        assert self._reached.wait(60)

    def open(self) -> None:
        """Make the engine continue."""
        self._opened.set()


# --- over the API ---------------------------------------------------------------------------------


@pytest.fixture
def http(controller: Controller) -> Iterator[httpx.Client]:
    """The API of the controller, with some jobs and a dataset."""
    add(controller)
    for _ in range(3):
        controller.submit(JOB, user=ME, key=None)
    with tempfile.TemporaryDirectory(prefix="hg-", dir="/tmp") as name:
        path = socket_path(Path(name))
        served = Server(make_app(controller), listen(path))
        served.start()
        transport = httpx.HTTPTransport(uds=str(path))
        base_url = "http://headgate/api/v1"
        with httpx.Client(transport=transport, base_url=base_url, timeout=60) as found:
            yield found
        served.stop()


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_no_request_causes_an_internal_error(http: httpx.Client, data: st.DataObject) -> None:
    method, target, query, content = data.draw(requests(["work-1", "work-2", "work-3", "ints"]))
    checked(http.request(method, target, params=query, content=content))


# --- submitting -----------------------------------------------------------------------------------


def test_many_submit_together_and_each_job_has_its_own_id(controller: Controller) -> None:
    with ThreadPoolExecutor(16) as threads:
        calls = [
            threads.submit(controller.submit, JOB, user=ME, key=f"k{i % 20}") for i in range(60)
        ]
    ids = [call.result() for call in calls]
    assert len(set(ids)) == 20
    assert ids[:20] == ids[20:40] == ids[40:]
    assert sorted(ids[:20]) == sorted(f"work-{n}" for n in range(1, 21))
    assert sorted(job.id for job in controller.snapshot().names.jobs) == sorted(set(ids))


def test_submissions_that_are_posted_together_are_made_durable_together(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, appended = Gate(controller, monkeypatch), []
    append = controller._durable.journal.append
    monkeypatch.setattr(
        controller._durable.journal,
        "append",
        lambda batch: (appended.append(batch), append(batch))[1],
    )
    with ThreadPoolExecutor(20) as threads:
        calls = [threads.submit(controller.submit, JOB, user=ME, key=None) for _ in range(20)]
        gate.wait()
        inbox, end = controller.world.inbox, time.monotonic() + 50
        while len(inbox.batch) + inbox._posted.qsize() < 20:
            assert time.monotonic() < end
            time.sleep(0.01)
        gate.open()
    assert [call.exception() for call in calls] == [None] * 20
    assert len(appended) < 10


def test_submissions_with_one_key_are_one_job_while_the_first_is_in_progress(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(controller, monkeypatch)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(controller.submit, JOB, user=ME, key="k")
        gate.wait()
        second = threads.submit(controller.submit, JOB, user=ME, key="k")
        gate.open()
    assert first.result() == second.result() == "work-1"
    assert controller.submit(JOB, user=OTHER, key="k") == "work-2"


def test_key_is_known_and_numbers_continue_after_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as controller:
        kept = controller.submit(JOB, user=ME, key="k")
        controller.submit(JOB, user=ME, key=None)
    with running(tmp_path) as controller:
        assert controller.submit("not even read", user=ME, key="k") == kept
        assert controller.check(JOB, user=ME).id == "work-3"
        assert controller.submit(JOB, user=ME, key=None) == "work-3"


def test_a_submission_that_failed_takes_no_number_and_no_key(controller: Controller) -> None:
    assert code_of(lambda: controller.submit(READS, user=ME, key="k")) == "bad_spec"
    assert code_of(lambda: controller.submit("run: [", user=ME, key="k")) == "bad_spec"
    assert controller.submit(JOB, user=ME, key="k") == "work-1"


def test_number_of_a_failed_submission_is_used_again(tmp_path: Path) -> None:
    with running(tmp_path) as controller:
        numbers = [controller._submissions._next_number() for _ in range(3)]
        assert [number.__enter__() for number in numbers] == [1, 2, 3]
        for failed in (numbers[1], numbers[0]):
            assert not failed.__exit__(ValueError, ValueError(), None)
        numbers[2].__exit__(None, None, None)
        assert controller.check(JOB, user=ME).id == "work-1"
        ids = [controller.submit(JOB, user=ME, key=None) for _ in range(3)]
    assert ids == ["work-1", "work-2", "work-4"]
    with running(tmp_path) as controller:
        assert controller.submit(JOB, user=ME, key=None) == "work-5"


# --- checked and done in one step -----------------------------------------------------------------


def test_dataset_is_not_removed_while_a_job_that_reads_it_is_submitted(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(controller)
    gate = Gate(controller, monkeypatch)
    with ThreadPoolExecutor(1) as threads:
        job = threads.submit(controller.submit, READS, user=ME, key=None)
        gate.wait()
        assert code_of(lambda: controller.remove_dataset("ints", user=ME)) == "in_use"
        gate.open()
        assert job.result() == "work-1"
    assert code_of(lambda: controller.remove_dataset("ints", user=ME)) == "in_use"
    controller.cancel("work-1", user=ME)
    controller.remove_dataset("ints", user=ME)
    assert "ints" not in controller.snapshot().datasets


def test_a_dataset_that_is_being_removed_is_not_read_by_new_jobs(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(controller)
    gate = Gate(controller, monkeypatch)
    with ThreadPoolExecutor(1) as threads:
        removal = threads.submit(controller.remove_dataset, "ints", user=ME)
        gate.wait()
        assert code_of(lambda: controller.submit(READS, user=ME, key=None)) == "in_use"
        assert code_of(lambda: controller.remove_dataset("ints", user=ME)) == "in_use"
        put = partial(controller.put_shard, "ints", 0, iter([b"x"]), replicas=1, user=ME)
        assert code_of(put) == "in_use"
        gate.open()
        removal.result()
    assert code_of(lambda: controller.submit(READS, user=ME, key=None)) == "bad_spec"


def test_cancelling_a_job_that_ends_meanwhile_is_reported(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = controller.submit(JOB, user=ME, key=None)
    gate = Gate(controller, monkeypatch)
    with ThreadPoolExecutor(1) as threads:
        controller.world.inbox.post([JobCancelled(at=controller.now(), job=job, by="root")])
        gate.wait()
        late = threads.submit(controller.cancel, job, user=ME)
        gate.open()
    error = late.exception()
    assert isinstance(error, SpecError)
    assert error.code == "already_ended"
    assert controller.snapshot().jobs.message[0] == "cancelled by root"


def place(controller: Controller, name: str, index: int = 0, *, user: str = ME) -> None:
    """Upload a shard, to no node."""
    with controller._uploads._moving(name, index, user, controller.snapshot) as put:
        put.shards[index] = (StoredShard(id=f"{name}:{index:05d}", size_bytes=3, checksum=""), ())


def test_a_dataset_is_committed_once(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(controller, "ints")
    gate = Gate(controller, monkeypatch)
    commit = partial(controller.commit_dataset, "ints", shards=1, user=ME)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(commit)
        gate.wait()
        for call in (
            commit,
            partial(controller.abandon_dataset, "ints", user=ME),
            partial(place, controller, "ints"),
        ):
            assert code_of(call) == "exists"
        assert code_of(lambda: controller.remove_dataset("ints", user=ME)) == "in_use"
        gate.open()
        assert first.result().shards[0].size_bytes == 3
    assert code_of(commit) == "not_found"
    assert code_of(lambda: place(controller, "ints")) == "exists"


def test_upload_with_a_moving_shard_is_neither_committed_nor_replaced(
    controller: Controller,
) -> None:
    place(controller, "ints")
    with controller._uploads._moving("ints", 0, ME, controller.snapshot):
        commit = partial(controller.commit_dataset, "ints", shards=1, user=ME)
        assert code_of(commit) == "bad_spec"
        assert code_of(lambda: place(controller, "ints")) == "exists", "this shard"
        controller.abandon_dataset("ints", user=ME)
        assert code_of(lambda: place(controller, "ints", 1)) == "exists", "it is being abandoned"
    place(controller, "ints", 1, user=OTHER)
    assert controller.membership.uploading() == ("ints",)


def fail_within(claim: AbstractContextManager[None]) -> None:
    with claim:
        raise ZeroDivisionError


def test_claims_are_released_after_a_failure() -> None:
    claims = DatasetClaims()
    for claim in (claims.using(["a", "b"]), claims.removing("a"), claims.using(["a"])):
        with pytest.raises(ZeroDivisionError):
            fail_within(claim)
    with claims.removing("a"), claims.using(["b"]):
        pass


# --- rights ---------------------------------------------------------------------------------------


def test_job_that_reads_a_dataset_of_another_user_is_forbidden_unless_it_is_public(
    controller: Controller,
) -> None:
    add(controller)
    with pytest.raises(SpecError, match="headgate data put --public") as refused:
        controller.submit(READS, user=OTHER, key="k")
    assert refused.value.code == "forbidden"
    assert code_of(lambda: controller.check(READS, user=OTHER)) == "forbidden"
    assert controller.submit(READS, user=ME, key=None) == "work-1", "the number is free again"
    place(controller, "open")
    controller.commit_dataset("open", shards=1, user=ME, public=True)
    assert controller.submit(READS.replace("ints", "open"), user=OTHER, key="k") == "work-2"


def test_job_is_public_by_its_file_or_its_submission(controller: Controller) -> None:
    controller.submit(JOB, user=ME, key=None)
    controller.submit(JOB, user=ME, key=None, public=True)
    controller.submit("{name: work, run: 'true', public: true}", user=ME, key="k")
    view = controller.snapshot()
    assert [view.job(row).public for row in range(3)] == [False, True, True]
    assert [controller.may_read(view.job(row), OTHER) for row in range(3)] == [False, True, True]


def test_submission_of_a_user_without_an_account_is_rejected(controller: Controller) -> None:
    if os.geteuid() != 0:
        assert controller.submit(JOB, user="no-such-user", key=None) == "work-1"
        return
    assert code_of(lambda: controller.submit(JOB, user="no-such-user", key=None)) == "no_account"


def test_dry_run_changes_nothing_and_rejects_the_same_requests(controller: Controller) -> None:
    add(controller)
    job = controller.submit(READS, user=ME, key=None)
    in_use = partial(controller.remove_dataset, "ints", user=ME, dry_run=True)
    assert code_of(in_use) == "in_use"
    assert code_of(lambda: controller.cancel(job, user=OTHER, dry_run=True)) == "forbidden"
    controller.cancel(job, user=ME, dry_run=True)
    controller.cancel(job, user=ME)
    assert code_of(lambda: controller.cancel(job, user=ME, dry_run=True)) == "already_ended"
    controller.remove_dataset("ints", user=ME, dry_run=True)
    assert "ints" in controller.snapshot().datasets


@pytest.mark.parametrize(
    ("text", "path", "problem", "hint"),
    [
        (
            "{run: x, resources: {gpus: 9}}",
            "resources",
            "rejected: no node can satisfy this request",
            "needs 9 GPUs on one node, nodes have at most 2 GPUs: request less",
        ),
        (
            "{tasks: {run: x, count: 2}, reduce: {run: x, resources: {cpus: 99}}}",
            "reduce.resources",
            "rejected: no node can satisfy this request",
            "needs 99 CPUs on one node, nodes have at most 8 CPUs: request",
        ),
        (
            "{gang: true, tasks: {run: x, count: 5}}",
            "gang",
            "rejected: the cluster cannot satisfy this request",
            "needs 5 tasks with 5 GPUs together (a gang), at most 4 fit: request less",
        ),
        (
            "{run: x, num_nodes: 3}",
            "num_nodes",
            "rejected: the cluster cannot satisfy this request",
            "needs 3 processes with a GPU each on as many nodes, at most 2 fit: request",
        ),
        (
            "{queue: poor, gang: true, tasks: {run: x, count: 3}}",
            "queue",
            "rejected: needs 3 GPUs, queue poor allows 2",
            "request at most 2, use another queue, or raise its max_gpus",
        ),
        (
            "{run: x, resources: {gpu_model: [H100, L4]}}",
            "resources",
            "rejected: no node can satisfy this request",
            "needs 1 H100 or L4 GPU on one node, nodes have no H100 or L4 GPU (but Tesla T4)",
        ),
        (
            "{run: x, nodes: n1, resources: {gpus: 3}}",
            "resources",
            "rejected: no node can satisfy this request",
            "needs 3 GPUs on n1, these nodes have at most 2 GPUs",
        ),
        ("{run: x, nodes: [n0, n1x]}", "nodes[1]", "there is no node 'n1x'", "known: n0, n1"),
        ("{run: x, exclude: far}", "exclude[0]", "there is no node 'far'", "known: n0, n1"),
    ],
)
def test_job_that_can_never_run_is_rejected_with_place_and_the_most_that_fits(
    controller: Controller, text: str, path: str, problem: str, hint: str
) -> None:
    gpus = (Gpu(memory_bytes=1 << 30, model="Tesla T4"),) * 2
    nodes = [Node(id=f"n{n}", rack="r", gpus=gpus, cpus=8) for n in range(2)]
    now = controller.now()
    controller._handle([NodeJoined(at=now, node=node) for node in nodes])
    controller._handle([QueueChanged(at=now, queue=Queue(name="poor", max_gpus=2))])
    with pytest.raises(SpecError) as error:
        controller.submit(text, user=ME, key=None)
    assert error.value.code == "infeasible"
    (found,) = error.value.problems
    assert (found.path, found.problem) == (path, problem)
    assert found.hint.startswith(hint)


def test_upload_that_is_abandoned_twice_is_abandoned_once(controller: Controller) -> None:
    with controller._uploads._moving("ints", 0, ME, controller.snapshot):
        controller.abandon_dataset("ints", user=ME)
        controller.abandon_dataset("ints", user=ME)
    assert controller.membership.uploading() == ()


# --- archived jobs --------------------------------------------------------------------------------


def archive_all(controller: Controller) -> None:
    """End all jobs and archive them, as if they had ended long ago."""
    view = controller.snapshot()
    for row in range(len(view.jobs.state)):
        if view.jobs.state[row] not in ENDED:
            controller.cancel(view.job(row).id, user="root")
    controller._archivist._now = lambda: controller.now() + 1e6
    while asyncio.run(controller._archivist.look()):
        pass


def test_key_of_an_archived_job_is_known_and_numbers_are_not_used_again(tmp_path: Path) -> None:
    with running(tmp_path) as controller:
        with pytest.raises(SpecError):
            controller.submit("{name: work, run: 'true', queue: no}", user=ME, key="bad")
        jobs = [controller.submit(JOB, user=ME, key=key) for key in ("k", "l", None)]
        assert jobs == ["work-1", "work-2", "work-3"]
        archive_all(controller)
        assert controller.submit(JOB, user=ME, key="k") == "work-1"
        assert not controller._submissions._known, "keys of archived jobs are the archive's"
        assert controller.submit(JOB, user=OTHER, key="k") == "work-4"
        archive_all(controller)
    with running(tmp_path) as controller:
        assert controller.submit(JOB, user=ME, key="l") == "work-2"
        assert controller.submit(JOB, user=ME, key=None) == "work-5"


def test_numbers_of_archived_jobs_stay_taken_without_their_journal(tmp_path: Path) -> None:
    with running(tmp_path) as controller:
        controller.submit(JOB, user=ME, key="k")
        controller.submit(JOB, user=ME, key=None)
        archive_all(controller)
    for file in tmp_path.glob("journal.db*"):
        file.unlink()
    with running(tmp_path) as controller:
        assert controller.submit(JOB, user=ME, key=None) == "work-3"
        assert controller.submit(JOB, user=ME, key="k") == "work-1"
        assert controller.snapshot().jobs.number[0] == 3


def test_cancelling_an_archived_job_is_rejected(controller: Controller) -> None:
    job = controller.submit(JOB, user=ME, key=None)
    archive_all(controller)
    assert code_of(lambda: controller.cancel(job, user=ME)) == "already_ended"
    assert code_of(lambda: controller.cancel(job, user=OTHER)) == "forbidden"
    assert code_of(lambda: controller.cancel("work-9", user=ME)) == "not_found"


def test_damaged_archive_is_rejected_at_the_start_and_the_journal_is_closed(tmp_path: Path) -> None:
    with running(tmp_path) as controller:
        controller.submit(JOB, user=ME, key=None)
    archive = tmp_path / "archive.db"
    held = archive.read_bytes()
    archive.write_bytes(b"no archive" * 100)
    with pytest.raises(WorldError) as refused, running(tmp_path):
        pass
    assert refused.value.code == "archive_damaged"
    archive.write_bytes(held)
    with running(tmp_path) as controller:
        assert controller.snapshot().job(0).id == "work-1"
