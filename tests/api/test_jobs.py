"""Jobs over the API: submitted, listed, explained, followed, fetched and cancelled."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from headgate.api.client import Client
from headgate.base.errors import SpecError, WorldError
from headgate.model import SHARED, Demand, Gpu, Job, Node, Shard, Task
from headgate.protocol import JobSubmitted, NodeJoined, ReplicaAdded, ResultsExpired

TWO_TASKS = "{name: pair, tasks: {run: 'true', count: 2}}"
GANG_OF_FOUR = "{name: four, gang: true, tasks: {run: 'true', count: 4}}"
WITH_REDUCE = "{tasks: {run: 'true', count: 1}, reduce: {run: 'true'}}"


def test_a_submitted_job_runs_and_returns_its_result(client: Client, controller: Any) -> None:
    job = client.submit(WITH_REDUCE)
    assert client.job(job)["state"] == "active"
    assert client.job(job)["tasks"] == {"total": 2, "running": 1, "blocked": 1}
    with pytest.raises(SpecError) as early:
        b"".join(client.result(job, None))
    assert early.value.code == "not_finished"
    controller.end(job, 0, b"part")
    assert b"".join(client.result(job, 0)) == b"part"
    controller.end(job, 1, b"the whole result")
    view = client.job(job)
    assert (view["state"], view["gpus"]) == (
        "finished",
        {"held": 0, "peak": 1, "by_node": {"n0": [0]}},
    )
    assert view["ended_at"] - view["started_at"] == 2.0
    assert b"".join(client.result(job, None)) == b"the whole result"


def test_job_shows_copies_and_expiry_of_its_results(client: Client, controller: Any) -> None:
    plain = client.submit(WITH_REDUCE)
    assert client.job(plain)["results"] == {
        "replicas": 1, "path": None, "keep_s": None,
        "expires_at": None, "expires_in_s": None, "expired_at": None,
    }  # fmt: skip
    job = client.submit("{run: 'true', results: {replicas: 3, path: /shared}, keep: 1h}")
    kept = client.job(job)["results"]
    assert (kept["replicas"], kept["path"], kept["keep_s"]) == (3, "/shared", 3600.0)
    assert (kept["copies"], kept["shared"], kept["expires_in_s"]) == (None, False, None)
    controller.end(job, 0, b"result")
    result = Shard(id=f"{job}/0", size_bytes=6)
    controller.handle(ReplicaAdded(at=controller.clock, shard=result, node="n0"))
    controller.handle(ReplicaAdded(at=controller.clock, shard=result, node="n1"))
    controller.handle(ReplicaAdded(at=controller.clock, shard=result, node=SHARED))
    ended_at, controller.clock = controller.clock, controller.clock + 600
    kept = client.job(job)["results"]
    assert (kept["copies"], kept["shared"]) == (2, True)
    assert (kept["expires_at"], kept["expires_in_s"]) == (ended_at + 3600, 3000.0)
    controller.clock = ended_at + 3601
    controller.handle(ResultsExpired(at=controller.clock, job=job))
    kept = client.job(job)["results"]
    assert (kept["expired_at"], kept["expires_in_s"]) == (ended_at + 3601, None)
    for request in (
        lambda: b"".join(client.result(job, None)),
        lambda: b"".join(client.result(job, 0)),
        lambda: client.log(job, 0, attempt=None, offset=0),
    ):
        with pytest.raises(SpecError) as expired:
            request()
        assert expired.value.code == "expired"
        assert re.search(
            r"expired on 1970-01-12 at \d\d:\d\d:\d\d UTC, 1 h after its end",
            str(expired.value),
        )


def test_tasks_show_nodes_and_gpus(client: Client) -> None:
    job = client.submit(GANG_OF_FOUR)
    tasks = client.tasks(job)
    assert [t["ordinal"] for t in tasks] == [0, 1, 2, 3]
    assert client.task(job, 2) == tasks[2]
    assert {t["state"] for t in tasks} == {"running"}
    assert sorted((t["node"], *t["gpus"]) for t in tasks) == [
        ("n0", 0), ("n0", 1), ("n1", 0), ("n1", 1),
    ]  # fmt: skip
    nodes = client.nodes()
    assert [g["task"] for n in nodes for g in n["gpus"]] == [f"{job}/{i}" for i in range(4)]
    assert [n["runs"] for n in nodes] == [[f"{job}/0", f"{job}/1"], [f"{job}/2", f"{job}/3"]]
    assert [n["free_gpus"] for n in nodes] == [0, 0]
    assert nodes[0]["report"]["cpu_utilisation"] == 0.125
    assert nodes[0]["actual"] == {"cpus": 0.5, "memory_bytes": 4 << 30}
    assert [g["granted_share"] for n in nodes for g in n["gpus"]] == [1.0] * 4
    assert [g["utilisation"] for n in nodes for g in n["gpus"]] == [None, 0.75, None, None]
    assert [g["actual_memory_bytes"] for g in nodes[0]["gpus"]] == [None, 1 << 30]
    assert (nodes[1]["report"], nodes[1]["actual"]) == (None, None)


def test_nodes_show_what_grants_hold_of_them_and_of_their_gpus(client: Client) -> None:
    client.submit("{run: 'true', resources: {gpus: 0.25, cpus: 1.5}}")
    client.submit("{run: 'true', resources: {gpus: shared, gpu_memory: 1GiB}}")
    client.submit("{run: 'true', resources: {gpus: 0}}")
    nodes = client.nodes()
    assert [n["total"]["cpus"] for n in nodes] == [4.0, 4.0]
    assert [n["total"]["memory_bytes"] for n in nodes] == [None, None]
    assert sum(n["granted"]["cpus"] for n in nodes) == 2.5
    assert sum(n["free_cpus"] for n in nodes) == 5.5
    held = [(g["granted_share"], g["granted_memory_bytes"]) for n in nodes for g in n["gpus"]]
    assert sorted(run for n in nodes for run in n["runs"]) == ["job-1/0", "job-2/0", "job-3/0"]
    assert {g["task"] for n in nodes for g in n["gpus"]} == {None}
    shared = (0.25, 2 << 30)  # the part with no share fits beside the other
    assert sorted(held, reverse=True) == [shared, (0.0, 0), (0.0, 0), (0.0, 0)]
    assert sum(n["free_gpus"] for n in nodes) == 3


def test_nodes_have_the_documented_vectors_and_fields_of_gpus(
    client: Client, controller: Any
) -> None:
    task = Task(demand=Demand(cpus_milli=500, memory_bytes=2 << 30, custom=(("fpga", 1500),)))
    node = Node(
        id="n9", rack="r0", gpus=(Gpu(memory_bytes=1 << 30),), memory_bytes=8 << 30,
        custom=(("fpga", 3000),),
    )  # fmt: skip
    job = Job(id="fpga-1", name="fpga", user="ann", queue="default", tasks=(task,))
    at = controller.clock
    controller.handle(NodeJoined(at=at, node=node))
    controller.handle(JobSubmitted(at=at, job=job))
    found = next(n for n in client.nodes() if n["id"] == "n9")
    assert found["total"] == {"cpus": 4.0, "memory_bytes": 8 << 30, "fpga": 3.0}
    assert found["granted"] == {"cpus": 0.5, "memory_bytes": 2 << 30, "fpga": 1.5}
    assert (found["actual"], found["runs"]) == (None, ["fpga-1/0"])
    assert found["gpus"] == [
        {
            "index": 0, "memory_bytes": 1 << 30, "model": "", "task": None, "withheld": False,
            "granted_share": 0.0, "granted_memory_bytes": 0, "actual_memory_bytes": None,
            "outside_memory_bytes": 0, "outside_pid": None, "utilisation": None,
        }
    ]  # fmt: skip


def test_pages_contain_every_job_once_newest_first(client: Client) -> None:
    submitted = [client.submit(TWO_TASKS) for _ in range(7)]
    seen, cursor, pages = [], None, 0
    while True:
        page = client.jobs(limit=3, cursor=cursor)
        seen += [job["id"] for job in page["jobs"]]
        pages, cursor = pages + 1, page["next"]
        if pages == 1:
            client.submit(TWO_TASKS)  # what comes meanwhile shifts nothing
        if cursor is None:
            break
    assert seen == submitted[::-1]
    assert pages == 3


def test_jobs_are_filtered(client: Client, controller: Any) -> None:
    ended = client.submit("{run: 'true', queue: narrow}")
    waiting = client.submit("{run: 'true', queue: narrow}")
    other = client.submit(TWO_TASKS)
    assert [j["id"] for j in client.jobs(state="queued")["jobs"]] == [waiting]
    controller.end(ended, 0, b"")
    assert [j["id"] for j in client.jobs(queue="default")["jobs"]] == [other]
    assert [j["id"] for j in client.jobs(state="finished", queue="narrow")["jobs"]] == [ended]
    assert client.jobs(user="unknown-user")["jobs"] == []
    with pytest.raises(SpecError) as wrong:
        client.jobs(state="finishd")
    assert wrong.value.problems[0].hint == "did you mean 'finished'?"


@pytest.mark.parametrize("cursor", ["-1", "x", "٣"])
def test_a_cursor_that_is_no_number_is_rejected(client: Client, cursor: str) -> None:
    with pytest.raises(SpecError) as wrong:
        client.jobs(cursor=cursor)
    assert [p.path for p in wrong.value.problems] == ["cursor"]


def test_the_same_key_returns_the_same_job(client: Client) -> None:
    first = client.submit(TWO_TASKS, key="k1")
    assert client.submit(TWO_TASKS, key="k1") == first
    assert client.submit(TWO_TASKS, key="k2") != first
    assert len(client.jobs()["jobs"]) == 2


def test_a_dry_run_checks_and_submits_no_job(client: Client) -> None:
    promised = client.submit(TWO_TASKS, dry_run=True)
    assert client.jobs()["jobs"] == []
    with pytest.raises(SpecError):
        client.submit("{name: empty}", dry_run=True)
    assert client.submit(TWO_TASKS) == promised
    assert client.cancel(promised, dry_run=True)["was"] == "active"
    assert client.job(promised)["state"] == "active"


def test_all_problems_of_a_job_file_are_returned_with_their_place(client: Client) -> None:
    with pytest.raises(SpecError) as wrong:
        client.submit("nam: x\ntasks:\n  run: 'true'\n  count: -1\n")
    assert wrong.value.code == "bad_spec"
    found = [(p.path, p.line) for p in wrong.value.problems]
    assert found == [("nam", 1), ("tasks.count", 4)]
    assert "did you mean 'name'?" in wrong.value.problems[0].hint


def test_a_job_that_no_node_can_hold_is_infeasible(client: Client) -> None:
    with pytest.raises(SpecError) as wrong:
        client.submit("{run: 'true', resources: {gpus: 3}}")
    assert wrong.value.code == "infeasible"
    assert client.jobs()["jobs"] == []


def test_an_explanation_contains_the_numbers_of_the_reason(client: Client, controller: Any) -> None:
    client.submit(TWO_TASKS)
    gang = client.submit(GANG_OF_FOUR)
    controller.clock += 5
    view = client.why(gang)
    assert view["counts"] == {"waiting": 4}
    assert view["waits_s"] == 5.0
    assert view["reason"]["code"] == "GangShort"
    assert view["reason"]["numbers"] == {
        "placeable_tasks": 2, "tasks": 4, "free_gpus": 2, "needed_gpus": 4, "lacking": "",
        "stopping_tasks": 0, "reserved": None, "after_moves": None, "model": "",
    }  # fmt: skip
    assert client.job(gang)["reason"] == f"GangShort({view['reason']['text']})"


def test_cancelling_twice_is_already_ended(client: Client) -> None:
    job = client.submit(TWO_TASKS)
    assert client.cancel(job) == {
        "id": job, "was": "active", "state": "cancelled", "grace_s": 30.0, "dry_run": False,
    }  # fmt: skip
    assert client.job(job)["state"] == "cancelled"
    with pytest.raises(SpecError) as again:
        client.cancel(job)
    assert again.value.code == "already_ended"
    with pytest.raises(SpecError) as nothing:
        b"".join(client.result(job, None))
    assert nothing.value.code == "cancelled"


def test_a_log_is_read_in_pieces_to_its_end(client: Client, controller: Any) -> None:
    job = client.submit("{run: 'true'}")
    text = "".join(f"line {i}\n" for i in range(300))
    controller.logs[job, 0, 1] = text
    read, offset = "", 0
    controller.end(job, 0, b"")
    while True:
        piece = client.log(job, 0, attempt=None, offset=offset)
        read, offset = read + piece["text"], piece["next_offset"]
        if piece["ended"]:
            break
    assert read == text


def test_events_contain_the_counts_and_then_every_change(client: Client, socket: Path) -> None:
    seen: list[dict[str, Any]] = []
    first = threading.Event()

    def watch() -> None:
        with Client(socket) as other:
            for counts in other.events():
                seen.append(counts)
                first.set()
                if counts["jobs"]:
                    return

    watcher = threading.Thread(target=watch)
    watcher.start()
    assert first.wait(30)
    client.submit(TWO_TASKS)
    watcher.join(30)
    assert not watcher.is_alive()
    assert seen[0]["gpus"] == {"total": 4, "free": 4}
    assert seen[-1]["jobs"] == {"active": 1}
    assert seen[-1]["gpus"] == {"total": 4, "free": 2}
    assert [s["version"] for s in seen] == sorted({s["version"] for s in seen})


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda c: c.job("unknown-1"), "not_found"),
        (lambda c: c.why("unknown-1"), "not_found"),
        (lambda c: c.why("a/b ?"), "usage"),
        (lambda c: c.remove_dataset("../jobs/x"), "usage"),
        (lambda c: c.cancel("unknown-1"), "not_found"),
        (lambda c: c.log("unknown-1", 0, attempt=None, offset=0), "not_found"),
        (lambda c: c.jobs(limit=0), "bad_spec"),
        (lambda c: c.submit("x" * (5 << 20)), "too_large"),
    ],
)
def test_errors_keep_their_codes(client: Client, call: Any, code: str) -> None:
    with pytest.raises(SpecError) as wrong:
        call(client)
    assert wrong.value.code == code


def test_message_names_the_kind_of_file_that_is_too_large(client: Client) -> None:
    for send, what in ((client.submit, "job"), (client.set_topology, "topology")):
        with pytest.raises(SpecError, match=f"a {what} file has at most 4 MiB"):
            send("x" * (5 << 20))


def test_an_unknown_task_is_not_found(client: Client) -> None:
    job = client.submit(TWO_TASKS)
    for unknown in ((job, 2), ("job-9", 0)):
        with pytest.raises(SpecError) as found:
            client.task(*unknown)
        assert found.value.code == "not_found"


def test_the_log_of_an_unknown_task_is_not_found(client: Client) -> None:
    job = client.submit(TWO_TASKS)
    with pytest.raises(SpecError) as wrong:
        client.log(job, 2, attempt=None, offset=0)
    assert wrong.value.code == "not_found"
    assert "it has tasks 0 to 1" in str(wrong.value)


def test_an_internal_error_contains_no_traceback(
    client: Client, controller: Any, caplog: pytest.LogCaptureFixture
) -> None:
    controller.reports = lambda: 1 / 0
    with pytest.raises(WorldError) as broken:
        client.nodes()
    assert broken.value.code == "internal"
    assert "ZeroDivision" not in str(broken.value)
    assert "Traceback" not in str(broken.value)
    end = time.monotonic() + 30
    while "ZeroDivisionError" not in caplog.text and time.monotonic() < end:
        time.sleep(0.01)  # it is logged just after the response was sent
    assert "ZeroDivisionError" in caplog.text


def test_unknown_routes_return_an_error_object(socket: Path) -> None:
    with httpx.Client(
        transport=httpx.HTTPTransport(uds=str(socket)), base_url="http://headgate"
    ) as http:
        lost, wrong = http.get("/api/v1/jbos"), http.put("/api/v1/jobs")
        described = http.get("/api/v1/openapi.json").json()
    assert (lost.status_code, lost.json()["code"]) == (404, "not_found")
    assert (wrong.status_code, wrong.json()["code"]) == (405, "not_allowed")
    assert set(lost.json()["problems"][0]) == {"path", "problem", "hint"}
    assert {"/api/v1/jobs", "/api/v1/events", "/api/v1/datasets/{name}/commit"} <= set(
        described["paths"]
    )
