"""The Ray nodes of a Ray program, from what its members hold, and the submission of one."""

from __future__ import annotations

import json
import os
import pwd
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tests.live.controller.test_submission import controller

from headgate.base.errors import SpecError
from headgate.live.controller.controller import Controller
from headgate.live.run.ray_program import Offer, command, ray_nodes
from headgate.live.run.ray_start import look_often

__all__ = ["controller"]
GIB = 1 << 30
ME = pwd.getpwuid(os.geteuid()).pw_name


def offer(node: str, gpu: int | None, **fields: Any) -> Offer:
    given: dict[str, Any] = {
        "node": node,
        "directory": f"/tmp/hgr-{node}-{gpu}",
        "ports": (20000, 20199),
        "python": "/venv/bin/python3",
        "gpus": () if gpu is None else (gpu,),
        "cpus": None,
        "memory_bytes": 0,
        "machine_bytes": 64 * GIB,
        "shm_bytes": 32 * GIB,
        "custom": {},
        "node_cpus": 11,
        "node_gpus": 4,
    }
    return Offer(**{**given, **fields})


def test_members_on_one_node_make_one_ray_node_in_the_run_of_the_lowest_rank() -> None:
    offers = {2: offer("b", 3), 0: offer("b", 2), 3: offer("b", 0), 1: offer("a", 1)}
    head, other = ray_nodes(offers)
    assert (head.rank, head.node, head.directory) == (0, "b", "/tmp/hgr-b-2")
    assert (head.gpus, head.cpus) == ([0, 2, 3], 8)  # 3 quarters of 11
    assert head.memory_bytes + head.store_bytes == 48 * GIB
    assert (other.rank, other.node, other.gpus, other.cpus) == (1, "a", [1], 2)


def test_named_amounts_add_up_to_those_of_the_ray_node() -> None:
    named = {"memory_bytes": GIB, "custom": {"licence": 334}, "node_cpus": 64}
    (node,) = ray_nodes({r: offer("a", r, cpus=2 + (r == 0), **named) for r in range(3)})
    assert (node.cpus, node.custom) == (7, {"licence": 1002})
    assert node.memory_bytes + node.store_bytes == 3 * GIB


def test_ray_node_has_one_cpu_per_gpu_at_least() -> None:
    (node,) = ray_nodes({rank: offer("a", rank, node_cpus=2) for rank in range(4)})
    assert node.cpus == 4


def test_object_store_fits_into_the_shared_memory() -> None:
    (node,) = ray_nodes({0: offer("a", 0, memory_bytes=10 * GIB, shm_bytes=GIB)})
    assert node.store_bytes == int(0.95 * GIB)
    assert node.memory_bytes + node.store_bytes == 10 * GIB
    (small,) = ray_nodes({0: offer("a", 0, memory_bytes=10 * GIB, shm_bytes=0)})
    assert small.store_bytes == 80_000_000  # the least that Ray accepts, on a disk


def test_ray_node_without_gpus_has_its_part_of_the_memory_by_cpus() -> None:
    (node,) = ray_nodes({0: offer("a", None, cpus=11, node_gpus=0)})
    assert (node.gpus, node.cpus) == ([], 11)
    assert node.memory_bytes + node.store_bytes == 64 * GIB


def test_command_of_a_head_keeps_the_token_out_of_its_arguments() -> None:
    (head,) = ray_nodes({0: offer("a", 2)})
    text = command(head, "10.0.0.1:20001", "10.0.0.1", head=True)
    assert "CUDA_VISIBLE_DEVICES=2 " in text
    assert "RAY_AUTH_TOKEN_PATH=/tmp/hgr-a-2/token" in text
    assert "RAY_AUTH_TOKEN=" not in text
    assert "--head --port=20001" in text


def test_ray_node_keeps_to_its_ports() -> None:
    (head,) = ray_nodes({0: offer("a", 2)})
    text = command(head, "10.0.0.1:20001", "10.0.0.1", head=True)
    ports = [int(word.partition("=")[2]) for word in text.split() if "-port=" in word]
    assert len(ports) == len(set(ports)) == 9
    assert all(20000 < port <= 20199 for port in ports)


class Registry:
    """Ray's table of nodes, in which the node is from the third look on."""

    looks = 0

    def __init__(self, address: str) -> None:
        assert address == "head:1"

    def get_all_node_info(self) -> dict[SimpleNamespace, None]:
        Registry.looks += 1
        return {SimpleNamespace(hex=lambda: "a1"): None} if Registry.looks > 2 else {}


@pytest.mark.parametrize(("registry", "looks"), [(Registry, 3), (None, 0)])
def test_ray_node_is_looked_for_often_before_ray_looks_itself(
    monkeypatch: pytest.MonkeyPatch, registry: type | None, looks: int
) -> None:
    """Ray looks once a second. Where its table cannot be read, it does so alone."""
    ray_asked: list[tuple[str, str]] = []
    services = ModuleType("ray._private.services")
    services.get_node = lambda *node: ray_asked.append(node) or "facts"  # type: ignore[attr-defined,func-returns-value]
    raylet = ModuleType("ray._raylet")
    if registry is not None:
        raylet.GcsClient = registry  # type: ignore[attr-defined]
    for module in (services, raylet):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    private = ModuleType("ray._private")
    private.services = services  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray._private", private)
    Registry.looks = 0
    look_often()
    assert services.get_node("head:1", "a1") == "facts"
    assert (ray_asked, Registry.looks) == ([("head:1", "a1")], looks)


def test_ray_program_whose_script_is_not_there_is_rejected(
    controller: Controller, tmp_path: Path
) -> None:
    text = json.dumps({"ray": {"script": str(tmp_path / "none.py")}})
    with pytest.raises(SpecError, match="there is no file") as refused:
        controller.submit(text, user=ME, key=None)
    assert refused.value.problems[0].path == "ray.script"
