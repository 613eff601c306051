"""How the Ray nodes of a local cluster are started: commands, labels and environments."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from importlib import util

from headgate.live.cluster.ray_ports import PortBlock
from headgate.model import Node
from headgate.model.labels import as_labels, is_label

NAME_LABEL, RACK_LABEL, MEMORY_LABEL = "headgate-node", "headgate-rack", "headgate-gpu-memory"
MODEL_LABEL = "headgate-gpu-model"
_ID_LABEL = "ray.io/node-id"
ABOVE_RACKS = ("headgate-core", "headgate-aggregation")
"""Labels of the switches above a node's rack, from the top."""

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # a lost node is detected in about 3 s instead of about 14
    "RAY_health_check_initial_delay_ms": "5000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
    # none of our actors requires a CPU: prestarted idle workers only cost memory
    "RAY_prestart_worker_first_driver": "0",
    # every virtual node would monitor the memory of the whole machine
    "RAY_memory_monitor_refresh_ms": "0",
}
"""The environment of the nodes."""

DRIVER_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # a connection to a cluster that does not respond fails after 30 s instead of some minutes
    "RAY_NUM_REDIS_GET_RETRIES": "3",
    "RAY_py_gcs_connect_timeout_s": "5",
    "RAY_gcs_rpc_server_connect_timeout_s": "2",
    # a driver that has lost its cluster must not start another one
    "RAY_ENABLE_AUTO_CONNECT": "0",
}
"""The environment of a driver, of any cluster."""

_WORD = re.compile(r"[A-Za-z0-9]+")
_UNKNOWN = "unknown"
_STORE_BYTES = 80_000_000  # shards travel by Flight, so Ray's own object stores stay small


def head_command(name: str, host: str, temp: str, ports: PortBlock) -> list[str]:
    """Return the command of a head: Ray's control processes, without resources for tasks."""
    command = [
        *_ray_start(host, temp, ports),
        *("--head", f"--port={ports.gcs}", "--num-cpus=0", "--num-gpus=0", "--no-monitor"),
        *("--include-dashboard=false", "--labels", f"{NAME_LABEL}={name}"),
    ]
    if util.find_spec("grpc") is not None:  # then Ray starts a server for its clients
        command.append(f"--ray-client-server-port={ports.client_server}")
    return command


def node_command(address: str, node: Node, host: str, temp: str, ports: PortBlock) -> list[str]:
    """Return the command of a node with virtual GPUs, independent of the machine's GPUs."""
    labels = {NAME_LABEL: node.id, RACK_LABEL: node.rack}
    if node.gpus:
        labels[MEMORY_LABEL] = str(min(gpu.memory_bytes for gpu in node.gpus))
        labels |= _model_label([gpu.model for gpu in node.gpus])
    labels |= {name: value for name, _, value in (each.partition("=") for each in node.labels)}
    return [
        *_ray_start(host, temp, ports),
        *(f"--address={address}", f"--num-cpus={node.cpus}", f"--num-gpus={len(node.gpus)}"),
        *("--labels", ",".join(f"{key}={value}" for key, value in labels.items())),
    ]


def _model_label(models: Sequence[str]) -> dict[str, str]:
    """Return the label with the models of GPUs: one, or one each; words are joined by hyphens."""
    if not any(models):
        return {}
    names = ["-".join(_WORD.findall(model)) or _UNKNOWN for model in models]
    return {MODEL_LABEL: ".".join(names if len(set(names)) > 1 else names[:1])}


def node_labels(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return the labels of a Ray node that users know: without Headgate's, and Ray's for its id."""
    written = (
        f"{name}={value}" if value else name
        for name, value in labels.items()
        if not name.startswith("headgate-") and name != _ID_LABEL
    )
    return as_labels(label for label in written if is_label(label))


def labelled_gpus(
    labels: Mapping[str, str], count: int
) -> tuple[int | None, tuple[str, ...] | None]:
    """Return the memory and the models of a node's GPUs by its labels, "" if unknown.

    None where there is no such label.
    """
    memory, label = labels.get(MEMORY_LABEL), labels.get(MODEL_LABEL)
    memory_bytes = None if memory is None else int(memory)
    if label is None:
        return memory_bytes, None
    models = ["" if name == _UNKNOWN else name for name in label.split(".")]
    each = models * count if len(models) == 1 else (models + [""] * count)[:count]
    return memory_bytes, tuple(each)


def _ray_start(host: str, temp: str, ports: PortBlock) -> list[str]:
    return [
        *(sys.executable, "-P", "-m", "ray.scripts.scripts", "start", "--block"),
        *(f"--node-ip-address={host}", f"--temp-dir={temp}", *ports.options()),
        *(f"--object-store-memory={_STORE_BYTES}", "--include-log-monitor=false"),
        "--disable-usage-stats",
    ]
