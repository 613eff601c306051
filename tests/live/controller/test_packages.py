"""Packages at the controller: of their user alone, kept while used, named by jobs; without Ray."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any

import pytest
from tests.live.controller.test_submission import ME, OTHER, controller, running

from headgate.base.errors import SpecError
from headgate.live.actors import master_client
from headgate.live.controller.controller import Controller
from headgate.live.node import packages as module
from headgate.live.node.packages import package_shard
from headgate.model import Gpu, Node, RunEnvironment
from headgate.protocol import NodeJoined

__all__ = ["controller"]


@pytest.fixture(autouse=True)
def no_master(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start no master, which would start a Ray cluster: the jobs stay in flight."""

    def start(*_: Any) -> None:
        raise ValueError("there is no Ray")

    monkeypatch.setattr(master_client, "start_master", start)


def sent(controller: Controller, content: bytes, user: str = ME) -> str:
    digest = hashlib.sha256(content).hexdigest()
    controller.put_package(digest, iter([content]), user=user)
    return digest


def job_of(digest: str) -> str:
    return f"{{run: 'true', working_dir: {{package: '{digest}'}}, pip: [a], setup: make}}"


def join(controller: Controller) -> None:
    node = Node(id="n0", rack="r0", gpus=(Gpu(memory_bytes=1 << 30),))
    controller._handle([NodeJoined(at=controller.now(), node=node)])


def code_of(call: Any) -> str:
    with pytest.raises(SpecError) as caught:
        call()
    return caught.value.code


def test_package_is_found_by_its_user_only(controller: Controller) -> None:
    digest = sent(controller, b"files")
    assert controller.use_package(digest, user=ME) == {"package": digest, "size_bytes": 5}
    assert code_of(lambda: controller.use_package(digest, user=OTHER)) == "not_found"


@pytest.mark.parametrize(
    ("digest", "content", "code"),
    [
        ("0" * 64, [b"x"], "changed"),
        ("../../etc", [b"x"], "bad_spec"),
        (hashlib.sha256(bytes(9)).hexdigest(), [bytes(5), bytes(4)], "too_large"),
    ],
)
def test_invalid_package_is_not_stored(
    controller: Controller, monkeypatch: pytest.MonkeyPatch, digest: str, content: Any, code: str
) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 8)
    assert code_of(lambda: controller.put_package(digest, iter(content), user=ME)) == code
    assert controller._packages._store.list() == ()


def test_job_names_a_package_of_its_user(tmp_path: Path) -> None:
    with running(tmp_path) as first:
        join(first)
        digest = sent(first, b"files")
        assert code_of(lambda: first.submit(job_of(digest), user=OTHER, key=None)) == "not_found"
        assert first.check(job_of("0" * 64), user=ME)  # a client checks before it sends
        job = first.submit(job_of(digest), user=ME, key=None)
        view = first.snapshot()
        expected = RunEnvironment(package=digest, pip=("a",), setup=("make",))
        assert view.job(view.names.job_rows[job]).program.environment == expected
    with running(tmp_path) as again:  # from the journal
        view = again.snapshot()
        assert view.job(view.names.job_rows[job]).program.environment == expected
        assert again.use_package(digest, user=ME)


@pytest.mark.parametrize(
    "keys",
    ["run: x, working_dir: src", "run: x, pip: requirements.txt", "ray: {script: train.py}"],
)
def test_job_file_with_paths_of_the_client_is_rejected(controller: Controller, keys: str) -> None:
    join(controller)
    with pytest.raises(SpecError, match="names files that were not sent"):
        controller.submit(f"{{{keys}}}", user=ME, key=None)


def test_script_of_a_ray_program_may_lie_in_its_package(controller: Controller) -> None:
    join(controller)
    digest = sent(controller, b"files")
    text = f"{{ray: {{script: train.py}}, working_dir: {{package: '{digest}'}}}}"
    job = controller.submit(text, user=ME, key=None)
    view = controller.snapshot()
    assert view.job(view.names.job_rows[job]).program.environment.package == digest
    with pytest.raises(SpecError, match="there is no file"):
        controller.submit(text.replace("train.py", "/no/train.py"), user=ME, key=None)


def test_packages_expire_after_their_last_use_unless_a_job_in_flight_has_them(
    controller: Controller,
) -> None:
    join(controller)
    needed, old, recent = (sent(controller, bytes([n])) for n in range(3))
    controller.submit(job_of(needed), user=ME, key=None)
    past_s = time.time() - 2 * module.KEEP_S
    store = controller._packages._store
    for digest in (needed, old):
        os.utime(store.path(package_shard(ME, digest)), (past_s, past_s))
    controller._packages.expire()
    kept = sorted(package_shard(ME, digest) for digest in (needed, recent))
    assert [stored.id for stored in store.list()] == kept
