"""Headgate as its users see it: jobs, data, limits, reasons, and faults."""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.live.system import Gates, Headgate

from headgate.api.address import socket_path
from headgate.api.client import Client
from headgate.base.errors import SpecError, WorldError
from headgate.workloads.generate import generate
from headgate.workloads.verify import verify

pytestmark = pytest.mark.live
GPUS = 6
QUEUES = """
queues:
- {name: default}
- {name: one, max_jobs_in_flight: 1}
- {name: two, max_gpus: 2}
"""


@pytest.fixture(scope="module")
def headgate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headgate]:
    queues = tmp_path_factory.mktemp("use") / "queues.yaml"
    queues.write_text(QUEUES)
    with Headgate(nodes=3, gpus=2, up=(f"--queues={queues}",)) as headgate:
        yield headgate


@pytest.fixture(autouse=True)
def _history(headgate: Headgate) -> Iterator[None]:
    """End jobs that a failed test has left."""
    yield
    for job in headgate.client.jobs()["jobs"]:
        if job["state"] in ("queued", "active"):
            headgate.client.cancel(job["id"])
    headgate.until(
        lambda: all(node["free_gpus"] == 2 for node in headgate.client.nodes()), "all is free"
    )


def _job(run: str, count: int = 1, *, name: str = "work", queue: str = "default") -> str:
    return json.dumps({"name": name, "queue": queue, "tasks": {"count": count, "run": run}})


def _reason(headgate: Headgate, job: str, code: str) -> Any:
    """Wait for the reason why a job waits, and return its numbers."""

    def found() -> Any:
        reason = headgate.client.why(job)["reason"]
        return reason["numbers"] if reason is not None and reason["code"] == code else None

    return headgate.until(found, f"{job} waits for {code}")


def test_from_data_to_a_checked_result_on_the_command_line(
    headgate: Headgate, tmp_path: Path
) -> None:
    inputs = generate("occurrence", tmp_path, 3 << 20, seed=3)
    file = tmp_path / "job.yaml"
    file.write_text(f"""
name: occurrence
data: {{ints: {{from: my-ints}}}}
tasks:
  for_each: ints
  run: "headgate.workloads.occurrence:count"
  params: {json.dumps(dict(inputs.params))}
  resources: {{gpus: 1, gpu_memory: 1GiB}}
reduce: {{run: "headgate.workloads.occurrence:merge"}}
""")
    error = headgate.call("submit", str(file), code=2)
    assert "my-ints" in error["problems"][0]["problem"]
    ints = str(inputs.files["ints"])
    for index in range(9):  # by a client that was interrupted and never continued
        headgate.client.put_shard("my-ints", index, [b"left over"], replicas=1)
    put = headgate.call("data", "put", ints, "--name=my-ints", "--shard=512KiB")
    assert (put["shards"], put["size_bytes"]) == (6, 3 << 20)
    (dataset,) = headgate.call("data", "ls")["datasets"]
    assert (dataset["name"], dataset["replicas"]) == ("my-ints", 2)

    ended = headgate.call("submit", str(file), "--wait")
    job = ended["id"]
    assert (ended["state"], ended["tasks"]) == ("finished", {"total": 7, "finished": 7})
    assert job in [listed["id"] for listed in headgate.call("jobs")["jobs"]]
    assert len(headgate.call("get", job)["task_list"]) == 7
    assert headgate.call("why", job)["reason"] is None
    assert "integers" in headgate.call("logs", job)["text"]
    result = tmp_path / "counts.npz"
    headgate.call("get", job, "--output", str(result))
    assert verify(inputs, [result]) == ""
    assert [node["state"] for node in headgate.call("nodes")["nodes"]] == ["up"] * 3

    headgate.call("data", "rm", "my-ints", "-y")
    assert headgate.call("data", "ls")["datasets"] == []
    assert not [s for n in headgate.nodes for s in headgate.store(n.id).list() if ":" in s.id]
    assert headgate.call("get", "unknown-9", code=102)["code"] == "not_found"


def test_failing_task_is_retried_and_then_its_log_is_shown(
    headgate: Headgate, tmp_path: Path
) -> None:
    job = headgate.submit(
        "{name: bad, tasks: {count: 2, retries: 1, run: "
        "'echo try of {index}; [ {index} = 0 ] || { echo oh no; exit 3; }'}}"
    )
    ended = headgate.ends(job, "failed")
    assert "task 1 failed 2 times" in ended["message"]
    assert "oh no" in ended["message"]
    task = headgate.client.tasks(job)[1]
    assert (task["state"], task["attempts"], task["failures"]) == ("failed", 2, 2)
    shown = headgate.run("get", job)
    assert (shown.returncode, "oh no" in shown.stdout) == (0, True)
    for attempt in ((), ("--attempt=1",), ("--attempt=2",)):
        assert headgate.call("logs", job, *attempt)["text"] == "try of 1\noh no\n"
    error = headgate.call("get", job, "--output", str(tmp_path), code=100)
    assert error["code"] == "failed"


def test_a_hanging_job_is_ended_by_cancel_with_all_its_processes(
    headgate: Headgate, gates: Gates
) -> None:
    hangs = json.loads(_job(f"trap '' TERM INT; sleep 1000 & {gates.command()}", 3))
    job = headgate.submit(json.dumps({**hangs, "grace": "1s"}))
    headgate.running(job, 3)
    headgate.until(lambda: len(gates.alive()) == 3, "they hang")
    assert headgate.call("cancel", job)["was"] == "active"
    assert headgate.ends(job, "cancelled")["message"].startswith("cancelled by")
    headgate.until(lambda: gates.alive() == [], "no process is left")
    assert headgate.call("cancel", job, code=2)["code"] == "already_ended"


def test_moving_shard_is_removed_when_its_dataset_is_abandoned(headgate: Headgate) -> None:
    with Client(socket_path(headgate.state)) as other:

        def pieces() -> Iterator[bytes]:
            for _ in range(20):
                yield b"x" * (1 << 20)
                other.abandon_dataset("left")  # it counts once the shard is on its way
                time.sleep(0.1)

        with pytest.raises(SpecError, match="has been abandoned"):
            headgate.client.put_shard("left", 0, pieces(), replicas=2)
    for node in headgate.nodes:
        with pytest.raises(WorldError, match="is not on this node"):
            headgate.shard_file(node.id, "left:00000")
    headgate.client.put_shard("left", 0, [b"y"], replicas=2)
    headgate.client.commit_dataset("left", shards=1)
    assert len(headgate.holders("left")[0]) == 2
    headgate.client.remove_dataset("left")


def test_tasks_run_where_their_data_are(headgate: Headgate, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_bytes(os.urandom(GPUS << 18))
    headgate.put("near", data, GPUS)
    held = [node for (node,) in headgate.holders("near")]
    assert sorted(held) == sorted(["n0", "n1", "n2"] * 2)
    text = "{name: near, data: {d: {from: near}}, tasks: {for_each: d, run: 'cksum < {shard}'}}"
    job = headgate.submit(text)
    ended = headgate.ends(job)
    assert [task["node"] for task in headgate.client.tasks(job)] == held
    assert ended["read_bytes"] == {"node": GPUS << 18, "rack": 0, "cluster": 0}
    headgate.client.remove_dataset("near")


def test_plain_files_on_a_shared_path_are_read_as_from_another_rack(
    headgate: Headgate, tmp_path: Path
) -> None:
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for number, file in enumerate(files):
        file.write_text("x" * 1000 * (number + 1))
    tasks = {"for_each": "texts", "run": "wc -c < {shard} > {output}"}
    text = {"name": "plain", "data": {"texts": {"files": list(map(str, files))}}, "tasks": tasks}
    job = headgate.submit(json.dumps(text))
    view = headgate.ends(job)
    assert [int(headgate.result(job, task)) for task in (0, 1)] == [1000, 2000]
    assert view["read_bytes"] == {"node": 0, "rack": 0, "cluster": 3000}
    text["data"] = {"texts": {"files": [str(tmp_path / "none.txt")]}}
    with pytest.raises(SpecError, match="there is no file"):
        headgate.submit(json.dumps(text))


def test_limits_hold_and_why_names_them_with_numbers(headgate: Headgate, gates: Gates) -> None:
    queued = [headgate.submit(_job(gates.command(name=f"q{i}"), queue="one")) for i in range(3)]
    limited = headgate.submit(_job(gates.command(name="m"), 3, queue="two"))
    headgate.running(queued[0], 1)
    headgate.running(limited, 2)
    for ahead, job in enumerate(queued[1:]):
        assert _reason(headgate, job, "JobsInFlightLimit") == {
            "queue": "one",
            "in_flight": 1,
            "max_jobs_in_flight": 1,
            "ahead": ahead,
        }
    assert _reason(headgate, limited, "QueueLimit") == {
        "queue": "two",
        "used_gpus": 2,
        "max_gpus": 2,
    }
    seen = []
    gates.open(0, name="q0")
    gates.open(0, 1, 2, name="m")
    for name in ("q1", "q2"):
        gates.open(0, name=name)
    while any(headgate.client.job(j)["state"] in ("queued", "active") for j in [*queued, limited]):
        by_name = {queue["name"]: queue for queue in headgate.client.queues()}
        seen.append((by_name["one"]["in_flight"], by_name["two"]["held_gpus"]))
    assert max(seen)[0] <= 1
    assert max(held for _, held in seen) <= 2
    for job in (*queued, limited):
        headgate.ends(job)


def test_array_keeps_its_limit_and_the_job_after_it_starts_when_it_has_finished(
    headgate: Headgate, gates: Gates
) -> None:
    tasks = {"count": 3, "max_running": 1, "run": gates.command()}
    array = headgate.submit(json.dumps({"name": "array", "tasks": tasks}))
    later = headgate.submit(json.dumps({"run": "true"}), after=[array])
    headgate.running(array, 1)
    assert _reason(headgate, array, "MaxRunning") == {"running": 1, "max_running": 1}
    assert _reason(headgate, later, "WaitsForJobs")["job"] == array
    gates.open(0, 1, 2)
    started_at = headgate.ends(later)["started_at"]
    view = headgate.ends(array)
    assert (view["gpus"]["peak"], view["ended_at"] <= started_at) == (1, True)


def test_why_names_shares_and_full_clusters(headgate: Headgate, gates: Gates) -> None:
    first = headgate.submit(_job(gates.command(name="a"), GPUS + 1, name="first"))
    headgate.running(first, GPUS)
    assert _reason(headgate, first, "NoFreeGpu")["total_gpus"] == GPUS
    second = headgate.submit(_job(gates.command(name="b"), 4, name="second"))
    assert _reason(headgate, second, "BelowShare") == {
        "running_gpus": 0,
        "share_gpus": 3,
        "ahead": first,
        "ahead_over_gpus": 3,
    }
    shown = headgate.run("why", second)
    assert "0 GPUs, fair share 3" in shown.stdout
    assert first in shown.stdout
    gates.open(*range(GPUS + 1), name="a")
    headgate.running(second, 4)
    gates.open(0, 1, 2, 3, name="b")
    for job in (first, second):
        headgate.ends(job)


def test_what_runs_have_used_is_learnt_and_compared_with_what_they_asked_for(
    headgate: Headgate,
) -> None:
    code = "x = bytearray(200 << 20); import time; time.sleep(4)"
    tasks = {
        "count": 3,
        "run": f"python3 -c '{code}'",
        "resources": {"gpus": 0, "cpus": 1, "memory": "2GiB"},
    }
    job = headgate.submit(json.dumps({"name": "sized", "tasks": tasks}))
    headgate.ends(job)
    sizing = headgate.client.why(job, 0)["sizing"]
    (memory,) = [each for each in sizing["amounts"] if each["resource"] == "memory"]
    assert (sizing["runs"], memory["asked"]) == (3, 2 << 30)
    assert 200 << 20 <= memory["used"] < memory["enough"] < 1 << 30
    assert "asked 2 GiB of memory, used at most" in headgate.run("why", f"{job}/0").stdout


def test_infeasible_jobs_are_rejected(headgate: Headgate) -> None:
    for resources in ("{gpu_memory: 9GiB}", "{gpus: 99}"):
        with pytest.raises(SpecError) as caught:
            headgate.submit(f"{{run: 'true', resources: {resources}}}")
        assert caught.value.code == "infeasible"


# --- bad weather -----------------------------------------------------------------------------


def test_a_corrupt_or_missing_replica_is_found_and_the_other_one_read(
    headgate: Headgate, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.write_bytes(os.urandom(GPUS << 16))
    headgate.put("rotten", data, GPUS, replicas=2)
    hurt = [f"rotten:{i:05d}" for i, held in enumerate(headgate.holders("rotten")) if "n0" in held]
    for shard in hurt[1:]:
        file = headgate.shard_file("n0", shard)
        content = bytearray(file.read_bytes())
        content[1000] ^= 1
        file.write_bytes(content)
    headgate.shard_file("n0", hurt[0]).unlink()
    headgate.until(
        lambda: sum("n0" in held for held in headgate.holders("rotten")) == len(hurt) - 1,
        "the missing one is missed",
    )
    job = headgate.submit("""
name: rotten
data: {d: {from: rotten}}
tasks: {for_each: d, run: "sleep 1; cp {shard} {output}", retries: 0}
reduce: {run: "cat {shards} > {output}"}
""")
    headgate.ends(job)
    assert headgate.result(job) == data.read_bytes(), "all was read from whole replicas"
    attempts = {task["ordinal"]: task["attempts"] for task in headgate.client.tasks(job)}
    found = {ordinal for ordinal, count in attempts.items() if count > 1}
    assert found, "at least one was placed beside a corrupt replica"
    assert found <= {int(shard[-5:]) for shard in hurt[1:]}
    assert all(attempts[ordinal] == 2 for ordinal in found), "and not there again"
    held = headgate.holders("rotten")
    assert not any("n0" in held[ordinal] for ordinal in found), "it is reported lost"
    headgate.client.remove_dataset("rotten")


def test_job_that_reads_lost_data_fails(headgate: Headgate, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_bytes(b"precious")
    headgate.put("gone", data, 1)
    ((node,),) = headgate.holders("gone")
    headgate.shard_file(node, "gone:00000").unlink()
    job = headgate.submit("{data: {d: {from: gone}}, tasks: {for_each: d, run: 'cat {shard}'}}")
    assert "gone:00000" in headgate.ends(job, "failed")["message"]
    headgate.client.remove_dataset("gone")


def test_while_the_journals_disk_is_full_nothing_is_lost(headgate: Headgate, gates: Gates) -> None:
    job = headgate.submit(_job(gates.command(name="f"), 2, name="full"))
    headgate.running(job, 2)
    pid = headgate.client.info()["pid"]
    size = (headgate.state / "journal.db-wal").stat().st_size
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, before[1]))  # no file may grow further
    try:
        with pytest.raises(WorldError) as caught:
            headgate.submit(_job("true"))
        assert caught.value.code == "journal_full"
        gates.open(0, name="f")
        headgate.until(lambda: gates.seen("end") == ["f0"], "running tasks continue")
        headgate.until(lambda: headgate.client.info()["journal_full"], "its end cannot be noted")
        for _ in range(2):
            with pytest.raises(WorldError) as caught:
                headgate.submit(_job("true"))
            assert caught.value.code == "journal_full"
        assert len(headgate.tasks_in(job, "running")) == 2
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
    headgate.until(lambda: len(headgate.tasks_in(job, "finished")) == 1, "the end is noted")
    gates.open(1, name="f")
    headgate.ends(job)
    headgate.ends(headgate.submit(_job("true")))
    assert [task["attempts"] for task in headgate.client.tasks(job)] == [1, 1]
    assert not headgate.client.info()["journal_full"]


def test_missing_ray_cluster_is_reported(tmp_path: Path, headgate: Headgate) -> None:
    state = str(tmp_path / "elsewhere")
    error = headgate.call("up", "--address=127.77.0.1:1", "--state-dir", state, code=1)
    assert "no Ray cluster responds at '127.77.0.1:1'" in error["problems"][0]["hint"]
    assert not (Path(state) / "config.json").exists(), "the next `up` is not led astray"
