"""The environment variables that describe the grant of a run."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tests.live.conftest import command, launch_of

from headgate.live.actors.executor import TaskExecutor
from headgate.live.base.records import GangRecord, OutcomeKind, Rendezvous
from headgate.live.node.run_logs import log_path
from headgate.live.run.environment import environment_of
from headgate.model import Demand, RunId

SHARE, GPU_BYTES = "HEADGATE_GPU_SHARE", "HEADGATE_GPU_MEMORY_BYTES"
CPUS, BYTES = "HEADGATE_CPUS", "HEADGATE_MEMORY_BYTES"

JOB = {"HEADGATE_JOB": "j"}


@pytest.mark.parametrize(
    ("holds", "gpus", "expected"),
    [
        (Demand(gpus=2), (0, 3), {SHARE: "1"}),
        (Demand(gpus=1, gpu_memory_bytes=700), (1,), {SHARE: "1", GPU_BYTES: "700"}),
        (Demand(gpus=1, gpu_milli=250, gpu_memory_bytes=9), (1,), {SHARE: "0.25", GPU_BYTES: "9"}),
        (Demand(gpus=1, gpu_milli=0, gpu_memory_bytes=9), (1,), {SHARE: "0", GPU_BYTES: "9"}),
        (Demand(cpus_milli=1000), (), {CPUS: "1"}),
        (Demand(cpus_milli=1500, memory_bytes=1 << 31), (), {CPUS: "1.5", BYTES: "2147483648"}),
        (Demand(custom=(("fpga", 1000),)), (), {}),
    ],
)
def test_environment_has_the_amounts_that_the_run_holds_and_no_others(
    holds: Demand, gpus: tuple[int, ...], expected: dict[str, str]
) -> None:
    devices = ",".join(map(str, gpus))
    assert environment_of(launch_of(0, gpus, holds=holds)) == {
        **JOB,
        "CUDA_VISIBLE_DEVICES": devices,
        **expected,
    }


def test_variables_of_headgate_override_those_of_the_job() -> None:
    job = command("true", envs={"A": "1", "HEADGATE_CPUS": "99", "CUDA_VISIBLE_DEVICES": "7"})
    launch = launch_of(holds=Demand(cpus_milli=2000), program=job)
    found = environment_of(launch)
    assert found == {"A": "1", "HEADGATE_CPUS": "2", "CUDA_VISIBLE_DEVICES": "", **JOB}


RANK = {"HEADGATE_RANK": "1", "HEADGATE_GANG_SIZE": "2", "HEADGATE_GANG_HOSTS": "h0,h1"}
GANG = GangRecord(hosts=("h0", "h1"), first_node="n0", first_ray_id="r0")


def test_member_of_a_gang_gets_its_rank_and_the_addresses_of_all() -> None:
    found = environment_of(launch_of(1, holds=Demand(cpus_milli=1000), gang=GANG))
    assert found == {"CUDA_VISIBLE_DEVICES": "", CPUS: "1", **JOB, **RANK}


def test_process_of_one_per_node_gets_the_variables_of_torchrun_which_override_its_own() -> None:
    meeting = Rendezvous(port=20123, hub_port=20124, token="secret")
    program = command("true", envs={"MASTER_PORT": "1", "RANK": "7"})
    gang = replace(GANG, rendezvous=meeting)
    found = environment_of(launch_of(1, (0, 3), program=program, gang=gang))
    assert found == {
        "CUDA_VISIBLE_DEVICES": "0,3",
        SHARE: "1",
        **JOB,
        **RANK,
        "MASTER_ADDR": "h0",
        "MASTER_PORT": "20123",
        "RANK": "1",
        "NODE_RANK": "1",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "2",
    }


def test_worker_is_not_reused_for_a_run_that_holds_another_share(tmp_path: Path) -> None:
    program = command(f"echo ${SHARE} ${GPU_BYTES} $CUDA_VISIBLE_DEVICES")
    shares = [
        Demand(gpus=1, gpu_milli=share, gpu_memory_bytes=size)
        for share, size in ((250, 25), (500, 50), (500, 50))
    ]

    async def scenario() -> list[int]:
        executor = TaskExecutor(node="n0", root=str(tmp_path), linger_s=600)
        runs = []
        for number, share in enumerate(shares):
            launch = launch_of(number, (2,), holds=share, program=program)
            await executor.begin([launch])
            assert (await executor.outcome(launch.run)).kind is OutcomeKind.FINISHED
            runs.append(sum(worker.runs for worker in executor._idle))
        await executor.close()
        return runs

    assert asyncio.run(asyncio.wait_for(scenario(), 120)) == [1, 1, 2]
    logs = [log_path(tmp_path, "n0", RunId("j", number, 1)).read_text() for number in range(3)]
    assert logs == ["0.25 25 2\n", "0.5 50 2\n", "0.5 50 2\n"]


def test_worker_serves_one_job_alone(tmp_path: Path) -> None:
    async def scenario() -> list[int]:
        executor = TaskExecutor(node="n0", root=str(tmp_path), linger_s=600)
        runs = []
        for job, number in (("first", 0), ("second", 0), ("second", 1), ("first", 1)):
            launch = launch_of(run=RunId(job, number, 1), program=command("echo $PPID > {output}"))
            await executor.begin([launch])
            assert (await executor.outcome(launch.run)).kind is OutcomeKind.FINISHED
            runs.append(len(executor._idle))
        await executor.close()
        return runs

    assert asyncio.run(asyncio.wait_for(scenario(), 120)) == [1, 2, 2, 2]
