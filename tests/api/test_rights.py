"""Rights over REST: logs and results are the owner's, unless the job is public."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headgate.api.client import Client
from headgate.base.errors import SpecError

JOB = "{name: a, run: 'echo hello', resources: {gpus: 0}}"


@pytest.fixture
def other_user(client: Client, controller: Any) -> Client:
    """A client that is neither the owner of a job of `alice` nor an administrator."""
    controller.admins = set()
    return client


def _forbidden(call: Any) -> None:
    with pytest.raises(SpecError, match="belongs to alice") as caught:
        call()
    assert caught.value.code == "forbidden"
    assert "--public" in caught.value.problems[0].hint


def test_log_and_result_of_another_users_job_are_forbidden(
    other_user: Client, controller: Any
) -> None:
    job = controller.submit(JOB, user="alice", key=None)
    controller.logs[job, 0, 1] = "the log"
    controller.end(job, 0, b"the result")
    _forbidden(lambda: other_user.log(job, 0, attempt=None, offset=0))
    _forbidden(lambda: b"".join(other_user.result(job, None)))
    _forbidden(lambda: other_user.files(job))
    _forbidden(lambda: b"".join(other_user.files_content(job, 0, 1)))


def test_log_and_result_of_a_public_job_are_readable_by_all_users(
    other_user: Client, controller: Any
) -> None:
    for text, public in ((JOB, True), (JOB[:-1] + ", public: true}", False)):
        job = controller.submit(text, user="alice", key=None, public=public)
        controller.logs[job, 0, 1] = "the log"
        controller.end(job, 0, b"the result")
        assert other_user.job(job)["public"]
        assert other_user.log(job, 0, attempt=None, offset=0)["text"] == "the log"
        assert b"".join(other_user.result(job, None)) == b"the result"


def test_failure_of_another_users_job_is_shown_without_its_log(
    other_user: Client, controller: Any
) -> None:
    text = "{tasks: {count: 1, run: x, retries: 0, resources: {gpus: 0}}}"
    job = controller.submit(text, user="alice", key=None)
    controller.end(job, 0, "the last lines of its log")
    views = [other_user.job(job), other_user.jobs()["jobs"][0], other_user.why(job)]
    assert [view["state"] for view in views] == ["failed"] * 3
    assert "last lines" not in json.dumps(views)
    controller.admins = {other_user.info()["you"]}
    assert all(
        "last lines" in view["message"]
        for view in (other_user.job(job), other_user.jobs()["jobs"][0])
    )


def test_job_and_dataset_are_public_if_the_request_sets_it(client: Client, controller: Any) -> None:
    assert client.job(client.submit(JOB, public=True))["public"]
    assert not client.job(client.submit(JOB))["public"]
    for name, public in (("open", True), ("closed", False)):
        client.put_shard(name, 0, [b"data"], replicas=1)
        client.commit_dataset(name, shards=1, public=public)
        assert client.dataset(name)["public"] is public
