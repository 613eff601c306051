"""Results that survive their nodes, and that expire."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from tests.live.system import Gates, Headgate

from headgate.base.errors import HeadgateError, SpecError

pytestmark = pytest.mark.live


SYSTEM = {"nodes": 4, "gpus": 1}


@pytest.fixture(autouse=True)
def _all_up(headgate: Headgate) -> Iterator[None]:
    """End jobs that a failed test has left, and restart what it has killed."""
    yield
    headgate.up()
    for job in headgate.client.jobs()["jobs"]:
        if job["state"] in ("queued", "active"):
            headgate.client.cancel(job["id"])
    for node in sorted({node.id for node in headgate.nodes} - headgate.up_nodes()):
        headgate.restart_node(node)
    headgate.until(lambda: len(headgate.up_nodes()) == 4, "all nodes are up")


def results(headgate: Headgate, job: str) -> Any:
    return headgate.client.job(job)["results"]


def files_of(headgate: Headgate, job: str) -> list[Path]:
    """Return every file and directory on any node whose name has a job's id in it."""
    walked = os.walk(headgate.state / "nodes")  # unlike rglob, it bears what is removed meanwhile
    found = [(at, name) for at, *names in walked for name in chain(*names)]
    return sorted(Path(at, name) for at, name in found if job in name)


def holders(headgate: Headgate, shard: str) -> set[str]:
    """Return the nodes that store a shard."""
    return {n.id for n in headgate.nodes if headgate.store(n.id).find(shard) is not None}


def copied(headgate: Headgate, job: str, copies: int = 2) -> None:
    headgate.until(lambda: results(headgate, job)["copies"] == copies, f"{copies} copies of {job}")


def log_of(headgate: Headgate, job: str, task: int = 0) -> str:
    text: str = headgate.client.log(job, task, attempt=None, offset=0)["text"]
    return text


def running(headgate: Headgate, job: str, ordinal: int) -> Any:
    """Wait until a task runs, and return it."""

    def found() -> list[Any]:
        return [t for t in headgate.tasks_in(job, "running") if t["ordinal"] == ordinal]

    return headgate.until(found, f"task {ordinal} of {job} runs")[0]


def lose(headgate: Headgate, node: str) -> None:
    headgate.kill_node(node)
    headgate.until(lambda: node not in headgate.up_nodes(), f"the loss of {node} is known")


def test_result_in_two_copies_survives_its_node_and_gets_a_second_copy_again(
    headgate: Headgate,
) -> None:
    job = headgate.submit("{name: kept, run: 'echo kept > {output}', results: {replicas: 2}}")
    headgate.ends(job)
    copied(headgate, job)
    (task,) = headgate.client.tasks(job)
    assert task["node"] in holders(headgate, f"{job}/0")
    lose(headgate, task["node"])
    assert headgate.result(job) == b"kept\n"
    copied(headgate, job)
    assert headgate.client.tasks(job) == [task], "nothing ran again"


def test_maps_with_two_copies_do_not_run_again_when_their_node_is_lost_before_the_reduce(
    headgate: Headgate, gates: Gates
) -> None:
    job = headgate.submit(f"""
name: work
tasks: {{count: 4, run: "{gates.command()}", retries: 0}}
reduce: {{run: "{gates.command("cat {shards} > {output}", name="reduce")}"}}
results: {{replicas: 2}}
""")
    gates.open(0, 1, 2, 3)
    reduce = running(headgate, job, 4)
    copied(headgate, job)
    victim = next(task["node"] for task in headgate.client.tasks(job)
                  if task["node"] != reduce["node"])  # fmt: skip
    lose(headgate, victim)
    copied(headgate, job)
    lose(headgate, reduce["node"])
    gates.open(0, name="reduce")
    headgate.ends(job)
    assert headgate.result(job) == b"0\n1\n2\n3\n"
    attempts = [task["attempts"] for task in headgate.client.tasks(job)]
    assert attempts == [1, 1, 1, 1, 2], "the reduce alone ran again"


def test_result_on_a_shared_path_survives_all_nodes_without_repeated_maps(
    headgate: Headgate, gates: Gates, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    job = headgate.submit(f"""
name: work
tasks: {{count: 2, run: "{gates.command()}", retries: 0}}
reduce: {{run: "{gates.command("cat {shards} > {output}", name="reduce")}"}}
results: {{path: {shared}}}
""")
    gates.open(0, 1)
    running(headgate, job, 2)
    headgate.until(lambda: results(headgate, job)["shared"], "they are on the shared path")
    for node in {task["node"] for task in headgate.client.tasks(job)}:
        lose(headgate, node)
    gates.open(0, name="reduce")
    headgate.ends(job)
    assert [task["attempts"] for task in headgate.client.tasks(job)][:2] == [1, 1]
    headgate.until((shared / job / "2").is_file, "the last one, too")
    headgate.until(lambda: results(headgate, job)["shared"], "they are on the shared path")
    lose(headgate, headgate.client.tasks(job)[2]["node"])
    assert headgate.result(job) == b"0\n1\n"
    assert sorted(file.name for file in (shared / job).iterdir()) == ["0", "1", "2"]


def test_shortfall_of_copies_is_visible_and_the_job_finishes(headgate: Headgate) -> None:
    job = headgate.submit("{name: many, run: 'echo x > {output}', results: {replicas: 8}}")
    headgate.ends(job)
    copied(headgate, job, 4)
    assert results(headgate, job)["replicas"] == 8
    headgate.until(lambda: f"{job}/0 has 4 of 8 copies" in headgate.logged(), "it is logged")
    said = headgate.run("get", job).stdout
    assert "8 copies on nodes (4 exist)" in said


def test_expired_results_are_removed_from_nodes_and_the_shared_path(
    headgate: Headgate, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    text = "{{name: {name}, tasks: {{count: 4, run: 'echo {{index}} | tee {{output}}'}}, {more}}}"
    keeps = headgate.submit(text.format(name="stays", more="keep: forever"))
    headgate.ends(keeps)
    assert log_of(headgate, keeps) == "0\n"
    more = f"results: {{replicas: 2, path: {shared}}}, keep: 20s"
    job = headgate.submit(text.format(name="goes", more=more))
    ended_at = headgate.ends(job)["ended_at"]
    assert results(headgate, job)["expires_at"] == ended_at + 20
    copied(headgate, job)
    headgate.until(lambda: results(headgate, job)["shared"], "all are on the shared path, too")
    assert len(list((shared / job).iterdir())) == 4
    headgate.until(lambda: results(headgate, job)["expired_at"], "its results have expired")
    assert results(headgate, job)["expired_at"] >= ended_at + 20
    headgate.until(lambda: not files_of(headgate, job), "nothing of it is left on any node")
    assert not (shared / job).exists()
    for ask in (headgate.result, partial(log_of, headgate)):
        with pytest.raises(
            SpecError, match=r"expired on \d{4}-\d\d-\d\d at .* after its end"
        ) as no:
            ask(job)
        assert no.value.code == "expired"
    error = headgate.call("get", job, "--output", str(tmp_path / "result"), code=102)
    assert error["code"] == "expired"
    assert headgate.result(keeps, 3) == b"3\n"
    assert log_of(headgate, keeps, 3) == "3\n"


def test_results_expire_after_a_restart_and_on_a_node_that_returns(
    headgate: Headgate,
) -> None:
    job = headgate.submit("{name: goes, run: 'echo gone > {output}', keep: 8s}")
    ended_at = headgate.ends(job)["ended_at"]
    node = headgate.client.tasks(job)[0]["node"]
    headgate.kill_controller()
    headgate.kill_node(node)
    headgate.up()
    assert results(headgate, job)["expires_at"] == ended_at + 8
    headgate.until(lambda: results(headgate, job)["expired_at"], "its results have expired")
    headgate.until(lambda: node not in headgate.up_nodes(), "its node is away")
    assert files_of(headgate, job), "what lies on a node that is away stays there"
    headgate.restart_node(node)
    headgate.until(lambda: not files_of(headgate, job), "and goes when the node is back")


def test_current_default_of_the_cluster_applies(headgate: Headgate) -> None:
    job = headgate.submit("{name: old, run: 'echo old > {output}'}")
    stays = headgate.submit("{name: old, run: 'echo old > {output}', keep: 1h}")
    for each in (job, stays):
        headgate.ends(each)
    assert results(headgate, job)["keep_s"] is None
    headgate.kill_controller()
    headgate.call("up", "--keep-results", "1s")
    assert headgate.client.info()["keep_results_s"] == 1
    headgate.until(lambda: not files_of(headgate, job), "it has expired")
    assert headgate.result(stays) == b"old\n"
    headgate.kill_controller()
    headgate.call("up", "--keep-results", "forever")
    assert headgate.client.info()["keep_results_s"] is None
    assert results(headgate, job)["expired_at"] is not None, "what is gone stays gone"


def test_scratch_of_a_dead_executor_is_removed_with_its_job(
    headgate: Headgate, gates: Gates
) -> None:
    job = headgate.submit(f"{{name: scratch, run: '{gates.command()}'}}")
    task = running(headgate, job, 0)
    headgate.until(lambda: gates.seen("start") == ["0"], "its program runs")
    (scratch,) = [f for f in files_of(headgate, job) if f.parent.name == "runs"]
    assert list(scratch.iterdir())
    (executor,) = headgate.actors("TaskExecutor", task["node"])
    executor.kill()
    headgate.until(lambda: gates.seen("start").count("0") == 2, "it runs again")
    leftover = scratch / "999999"  # as an executor leaves it that dies last of all
    leftover.mkdir()
    gates.open(0)
    headgate.ends(job)
    headgate.until(lambda: not scratch.exists(), "its scratch is removed")


def test_missing_directory_for_results_is_rejected(headgate: Headgate) -> None:
    with pytest.raises(HeadgateError, match="there is no directory '/nowhere/at/all'"):
        headgate.submit("{run: ls, results: {path: /nowhere/at/all}}")
