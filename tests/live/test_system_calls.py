"""`headgate.Executor` and `headgate.map`: calls in processes on real Ray nodes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live.shared import Clusters
from tests.live.system import Headgate

from headgate import Executor
from headgate import map as map_calls
from headgate.base.errors import SpecError, WorldError

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def headgate(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headgate]:
    queues = tmp_path_factory.mktemp("queues") / "queues.yaml"
    queues.write_text("queues: [{name: default}, {name: second}]")
    up = (f"--queues={queues}",)
    with clusters.lend(__name__, nodes=2, gpus=1, up=up) as headgate:
        yield headgate


def test_calls_run_on_granted_gpus_and_their_processes_end_after_them(headgate: Headgate) -> None:
    def call(number: int) -> tuple[int, int, str]:
        return number, os.getpid(), os.environ["CUDA_VISIBLE_DEVICES"]

    before = {job["id"] for job in headgate.client.jobs()["jobs"]}
    with Executor(client=headgate.client, resources={"gpus": 1}, name="calls") as executor:
        found = list(executor.map(call, range(2000)))
        assert [number for number, _, _ in found] == list(range(2000))
        processes = {pid for _, pid, _ in found}
        assert 1 <= len(processes) <= 2, "there are two GPUs"
        assert {gpus for _, _, gpus in found} == {"0"}
    jobs = {job["id"] for job in headgate.client.jobs()["jobs"]} - before
    assert jobs, "one, or several, since an executor requests more slots as calls arrive"

    def have_ended() -> bool:
        states = {headgate.client.job(job)["state"] for job in jobs}
        return states <= {"finished", "cancelled"}

    headgate.until(have_ended, "they have ended")
    headgate.until(
        lambda: all(node["free_gpus"] == 1 for node in headgate.client.nodes()), "GPUs are free"
    )


def test_processes_know_their_node_and_an_unknown_balancer_is_rejected(headgate: Headgate) -> None:
    def node(_: int) -> str:
        time.sleep(0.01)
        return os.environ["HEADGATE_NODE"]

    with Executor(client=headgate.client, slots=8, balancer="round-robin") as executor:
        found = set(executor.map(node, range(200)))
        assert found
        assert found <= {"n0", "n1"}
        assert {node for _, node in executor._server._nodes} == found
    with pytest.raises(SpecError, match=r"'best' is none; .*swrr"):
        Executor(client=headgate.client, balancer="best")


def test_error_of_a_call_and_its_traceback_reach_the_caller(headgate: Headgate) -> None:
    def fails(number: int) -> float:
        return 1 / (number - 5)

    results = map_calls(fails, range(10), client=headgate.client, slots=1)
    assert [next(results) for _ in range(5)] == [1 / (n - 5) for n in range(5)]
    with pytest.raises(ZeroDivisionError) as error:
        next(results)
    assert "in fails" in str(error.value.__cause__)


def test_calls_of_a_lost_node_run_again(headgate: Headgate, tmp_path: Path) -> None:
    def slow(number: int) -> int:
        (tmp_path / f"{number}.{os.getpid()}").touch()
        time.sleep(0.2)
        return number

    results = map_calls(
        slow, range(60), client=headgate.client, resources={"gpus": 1}, ordered=False
    )
    found = [next(results) for _ in range(10)]
    headgate.kill_node("n1")
    found += results
    assert sorted(found) == list(range(60))
    headgate.restart_node("n1")
    headgate.until(lambda: len(headgate.up_nodes()) == 2, "the node is back")


def test_second_executor_gets_its_share_of_the_gpus_that_the_first_one_holds(
    headgate: Headgate,
) -> None:
    def slow(number: int) -> int:
        time.sleep(0.1)
        return number

    gpu = {"gpus": 1}
    with (
        Executor(client=headgate.client, resources=gpu, name="first") as first,
        Executor(client=headgate.client, resources=gpu, name="second", queue="second") as second,
    ):
        calls = [first.submit(slow, number) for number in range(400)]  # 20 s on both GPUs
        headgate.until(
            lambda: not any(node["free_gpus"] for node in headgate.client.nodes()), "GPUs are held"
        )
        calls[0].result(60)
        assert second.submit(slow, 7).result(60) == 7
        assert not calls[-1].done(), "the first executor still has calls"
        assert [call.result(120) for call in calls] == list(range(400))


def test_calls_fail_when_their_job_is_cancelled_and_others_can_follow(headgate: Headgate) -> None:
    with Executor(client=headgate.client, slots=1, name="ends") as executor:
        call = executor.submit(time.sleep, 600)
        (job, *_) = headgate.until(
            lambda: [j for j in headgate.client.jobs()["jobs"] if j["name"] == "ends"], "it runs"
        )
        headgate.until(call.running, "the call is executed")
        headgate.client.cancel(job["id"], now=True)
        with pytest.raises(WorldError, match=f"{job['id']}, whose processes execute the calls"):
            call.result(60)
        assert executor.submit(abs, -3).result(60) == 3


def test_invalid_settings_and_functions_are_rejected_with_the_reason(headgate: Headgate) -> None:
    with pytest.raises(SpecError, match="resources"):
        Executor(client=headgate.client, resources={"gpus": "many"})
    with pytest.raises(SpecError, match="at least 1"):
        Executor(client=headgate.client, slots=0)
    with (
        Executor(client=headgate.client, slots=1) as executor,
        (headgate.state / "job.yaml").open("w") as file,
        pytest.raises(SpecError, match="cannot be pickled"),
    ):
        executor.submit(print, file)
