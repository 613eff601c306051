"""The environment variables of a run: those of its job, and those that describe its grant."""

from __future__ import annotations

from headgate.live.base.records import LaunchRecord
from headgate.model import Demand, amount_of


def environment_of(launch: LaunchRecord) -> dict[str, str]:
    """Return the variables of a run beyond those of its user's login.

    Headgate's variables override those of the job. Only those that apply are set. That with the
    name of the job also keeps an idle worker, which is used again in an equal environment, from
    serving another job.
    """
    return {
        **launch.program.envs,
        "HEADGATE_JOB": launch.run.job,
        "CUDA_VISIBLE_DEVICES": ",".join(str(gpu) for gpu in launch.gpus),
        **_demand_variables(launch.holds),
        **_gang_variables(launch),
    }


def _demand_variables(holds: Demand) -> dict[str, str]:
    found = {}
    if holds.gpus:
        found["HEADGATE_GPU_SHARE"] = str(amount_of(holds.gpu_milli))
        if holds.gpu_memory_bytes:
            found["HEADGATE_GPU_MEMORY_BYTES"] = str(holds.gpu_memory_bytes)
    if holds.cpus_milli:
        found["HEADGATE_CPUS"] = str(amount_of(holds.cpus_milli))
    if holds.memory_bytes:
        found["HEADGATE_MEMORY_BYTES"] = str(holds.memory_bytes)
    return found


def _gang_variables(launch: LaunchRecord) -> dict[str, str]:
    """Return the variables by which the processes of a gang find each other; none without one."""
    if launch.gang is None:
        return {}
    rank, hosts = str(launch.run.ordinal), launch.gang.hosts
    found = {
        "HEADGATE_RANK": rank,
        "HEADGATE_GANG_SIZE": str(len(hosts)),
        "HEADGATE_GANG_HOSTS": ",".join(hosts),
    }
    if (
        launch.gang.rendezvous is not None and launch.program.ray is None
    ):  # names and values as torchrun sets them
        found |= {
            "MASTER_ADDR": hosts[0],
            "MASTER_PORT": str(launch.gang.rendezvous.port),
            "RANK": rank,
            "NODE_RANK": rank,
            "LOCAL_RANK": "0",
            "WORLD_SIZE": str(len(hosts)),
        }
    return found
