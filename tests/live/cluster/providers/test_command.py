"""The command hook: what it reads, and how its failures are reported."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from headgate.live.cluster.providers import ProviderError
from headgate.live.cluster.providers.command import CommandHook
from headgate.model import Gpu
from headgate.model.scaling import Shape

SHAPE = Shape(
    name="large", cpus=8, gpus=(Gpu(memory_bytes=16),) * 2, memory_bytes=64, custom=(("fpga", 500),)
)


def hook(path: Path, script: str, timeout_s: float = 20.0) -> CommandHook:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return CommandHook([str(path), "argument"], timeout_s=timeout_s)


def test_hook_reads_action_key_and_shape(tmp_path: Path) -> None:
    own = hook(tmp_path / "hook", f"cat > {tmp_path}/request; echo $1 > {tmp_path}/argument")
    asyncio.run(own.create("large-1", SHAPE))
    assert json.loads((tmp_path / "request").read_text()) == {
        "action": "create",
        "key": "large-1",
        "shape": {
            "name": "large", "cpus": 8, "gpus": 2, "gpu_model": "",
            "gpu_memory_bytes": 16, "memory_bytes": 64,
            "custom": {"fpga": 0.5}, "labels": [],
        },
    }  # fmt: skip
    assert (tmp_path / "argument").read_text() == "argument\n"
    asyncio.run(own.remove("large-1"))
    assert json.loads((tmp_path / "request").read_text()) == {"action": "remove", "key": "large-1"}


@pytest.mark.parametrize(
    ("script", "timeout_s", "problem"),
    [
        ("echo first >&2; echo quota exceeded >&2; exit 3", 20.0, "status 3: quota exceeded"),
        ("exit 1", 20.0, "ended with status 1"),
        ("exec sleep 100", 0.2, "did not end in 0.2 s"),
    ],
)
def test_failures_are_errors_of_the_provider(
    tmp_path: Path, script: str, timeout_s: float, problem: str
) -> None:
    own = hook(tmp_path / "hook", script, timeout_s)
    with pytest.raises(ProviderError, match=problem):
        asyncio.run(own.create("k", SHAPE))


def test_program_that_is_missing_is_an_error_of_the_provider(tmp_path: Path) -> None:
    own = CommandHook([str(tmp_path / "none")], timeout_s=1.0)
    with pytest.raises(ProviderError, match="No such file"):
        asyncio.run(own.remove("k"))
