"""Archived jobs over the API: listed on request, shown and read like all others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headgate.api.archived import record_of
from headgate.api.client import Client
from headgate.base.errors import SpecError, WorldError
from headgate.protocol import ResultsExpired

ONE = "{run: 'true', resources: {gpus: 0}}"
PAIR = "{tasks: {run: 'true', count: 2, resources: {gpus: 0}}, keep: 1h}"


def ended(controller: Any, text: str = ONE, user: str = "ada") -> str:
    """Return a finished job, each task with its ordinal as result and log."""
    job = str(controller.submit(text, user=user, key=None))
    for launch in [run for run in list(controller.launches) if run[0] == job]:
        controller.logs[(*launch, 1)] = f"log of {launch[1]}"
        controller.end(job, launch[1], b"%d" % launch[1])
    return job


def listed(client: Client, **query: Any) -> list[str]:
    """Return the jobs of all pages."""
    found: list[str] = []
    cursor = None
    while True:
        page = client.jobs(**query, cursor=cursor)
        found += [job["id"] for job in page["jobs"]]
        cursor = page["next"]
        if cursor is None:
            return found


def code_of(call: Any) -> str:
    with pytest.raises((SpecError, WorldError)) as refused:
        call()
    return refused.value.code


def test_archived_job_has_the_same_view_with_archived_set(client: Client, controller: Any) -> None:
    job = ended(controller, PAIR)
    before = client.job(job), client.tasks(job), client.jobs()["jobs"]
    assert not before[0]["archived"]
    controller.move_to_archive(job)
    view = client.job(job)
    assert view == {**before[0], "archived": True}
    assert client.tasks(job) == before[1]
    assert client.jobs()["jobs"] == []
    assert client.jobs(all=True)["jobs"] == [{**before[2][0], "archived": True}]
    assert next(client.events())["jobs"] == {}, "counts are of jobs in the state"


def test_pages_go_through_hot_and_archived_jobs_in_the_order_of_submission(
    client: Client, controller: Any
) -> None:
    jobs = [ended(controller) for _ in range(9)]
    running = controller.submit(ONE, user="ada", key=None)
    controller.move_to_archive(*jobs[1:8:2])
    assert listed(client, limit=2) == [running, *jobs[8::-2]]
    assert listed(client, limit=2, all=True) == [running, *reversed(jobs)]
    page = client.jobs(limit=4, all=True)
    controller.move_to_archive(jobs[6], jobs[8])  # archiving meanwhile does not shift pages
    controller.submit(ONE, user="ada", key=None)
    rest = listed(client, limit=100, all=True)[-6:]
    after = client.jobs(limit=100, all=True, cursor=page["next"])
    assert [job["id"] for job in after["jobs"]] == rest == jobs[5::-1]


def test_filters_hold_for_archived_jobs(client: Client, controller: Any) -> None:
    mine, other = ended(controller), ended(controller, user="grace")
    cancelled = controller.submit(ONE, user="ada", key=None)
    controller.cancel(cancelled, user="ada")
    hot = ended(controller)
    controller.move_to_archive(mine, other, cancelled)
    assert listed(client, all=True, user="ada") == [hot, cancelled, mine]
    assert listed(client, all=True, user="ada", state="finished") == [hot, mine]
    assert listed(client, all=True, user="grace", queue="default") == [other]
    assert listed(client, all=True, queue="narrow") == []


def test_job_in_state_and_archive_is_listed_once(client: Client, controller: Any) -> None:
    jobs = [ended(controller) for _ in range(3)]
    controller.move_to_archive(*jobs)
    later = [ended(controller) for _ in range(3)]
    rows = [controller.snapshot().names.job_rows[job] for job in later]
    controller.archive.add([record_of(controller.snapshot(), row) for row in rows])
    assert listed(client, all=True, limit=2) == [*reversed(later), *reversed(jobs)]
    assert not client.job(later[0])["archived"], "the state counts until it has forgotten a job"


def test_logs_and_results_of_an_archived_job_are_read(client: Client, controller: Any) -> None:
    job = ended(controller, PAIR)
    controller.move_to_archive(job)
    assert client.log(job, 1, attempt=None, offset=0)["text"] == "log of 1"
    assert b"".join(client.result(job, None)) == b"1"
    assert b"".join(client.result(job, 0)) == b"0"
    for call in (
        lambda: client.log(job, 2, attempt=None, offset=0),
        lambda: b"".join(client.result(job, 2)),
        lambda: client.why(job, 2),
    ):
        assert code_of(call) == "not_found"


def test_expiry_of_an_archived_job_is_shown_and_ends_reading(
    client: Client, controller: Any
) -> None:
    job, early = ended(controller, PAIR), ended(controller, PAIR)
    controller.handle(ResultsExpired(at=controller.clock, job=early))
    controller.move_to_archive(job, early)
    controller.clock += 600.0
    kept = client.job(job)["results"]
    assert (kept["keep_s"], kept["expired_at"]) == (3600.0, None)
    assert kept["expires_in_s"] == kept["expires_at"] - controller.clock
    controller.archive.expire([controller.archive.find(job)], controller.clock)
    for name in (job, early):
        kept = client.job(name)["results"]
        assert kept["expired_at"] is not None
        assert kept["expires_in_s"] is None
        assert code_of(lambda name=name: b"".join(client.result(name, None))) == "expired"
        assert code_of(lambda name=name: client.log(name, 0, attempt=None, offset=0)) == "expired"


def test_explanation_of_an_archived_job_has_archived_set(client: Client, controller: Any) -> None:
    job = ended(controller, PAIR)
    before = client.why(job), client.why(job, 1)
    controller.move_to_archive(job)
    for task, was in zip((None, 1), before, strict=True):
        view = client.why(job, task)
        assert set(view) == set(was)
        assert (view["archived"], was["archived"]) == (True, False)
        assert (view["state"], view["counts"]) == ("finished", {"finished": 2})
    assert view["task"] == {
        "ordinal": 1, "state": "finished", "unfinished": [], "preempted": None, "stopped": None,
        "surplus": False, "needed": True,
    }  # fmt: skip


def test_archived_job_cannot_be_cancelled(client: Client, controller: Any) -> None:
    me = client.info()["you"]
    mine, other = ended(controller, user=me), ended(controller, user="ada")
    controller.move_to_archive(mine, other)
    assert code_of(lambda: client.cancel(mine)) == "already_ended"
    controller.admins = set()
    assert code_of(lambda: client.cancel(other)) == "forbidden"
    assert code_of(lambda: client.cancel("no-1")) == "not_found"


def test_rights_hold_for_archived_jobs(client: Client, controller: Any) -> None:
    controller.admins = set()
    secret, public = ended(controller), ended(controller, ONE[:-1] + ", public: true}")
    failed = controller.submit(
        "{tasks: {count: 1, run: x, retries: 0, resources: {gpus: 0}}}", user="ada", key=None
    )
    controller.end(failed, 0, "the last lines of its log")
    controller.move_to_archive(secret, public, failed)
    assert client.log(public, 0, attempt=None, offset=0)["text"] == "log of 0"
    assert b"".join(client.result(public, None)) == b"0"
    for call in (
        lambda: client.log(secret, 0, attempt=None, offset=0),
        lambda: b"".join(client.result(secret, None)),
    ):
        assert code_of(call) == "forbidden"
    views = [client.job(failed), client.jobs(all=True)["jobs"], client.why(failed)]
    assert "last lines" not in json.dumps(views)
    controller.admins = {client.info()["you"]}
    assert "last lines" in client.job(failed)["message"]
    assert code_of(lambda: b"".join(client.result(failed, None))) == "failed"
