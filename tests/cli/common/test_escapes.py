"""No verb writes an active control character, or lets a text of others begin a line of its own.

Everything that users, nodes and providers name is full of escapes here, and the controller sends it
raw: the program itself must escape it, in every format, in a pipe and on a terminal.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.responses import JSONResponse
from tests.cli.program import ME, VERBS

from headgate.api.client import Client
from headgate.api.responses import EscapedJSON
from headgate.base.errors import Problem, WorldError
from headgate.cli.cluster import cluster, lifecycle
from headgate.model import Dataset, Gpu, Node, Queue, Shard
from headgate.model.scaling import Scaling, Shape
from headgate.protocol import (
    DatasetAdded,
    JobSubmitted,
    NodeDraining,
    NodeJoined,
    OrderFailed,
    QueueChanged,
    ReplicaAdded,
    ScalingChanged,
)
from headgate.spec import expand, load_job

TITLE = "\x1b]0;X\x07\x1b[2J\x9b31m\x85\x7f\u202e\u2066\u2028"
EVIL = f"{TITLE}\r\nerror: all is lost"
MARKS = re.compile(
    "\x1b\\]|\x1b\\[2J|[\x00-\x08\x0b\x0c\x0e-\x1a\x7f-\x9f\u202a-\u202e\u2066\u2028]"
)
"""The parts of `TITLE`; on a terminal, the program's own sequences are others."""

LINES = re.compile(r"^error: all is lost", re.MULTILINE)
FILES = {
    "job": "{name: new, run: 'true'}",
    "queues": f"queues: [{{name: {json.dumps(EVIL)}}}]\n{json.dumps(EVIL)}: [1, 2]\n",
    "tree": (
        "levels: [{name: core}, {name: rack, bandwidth: 1e8}, {name: node, bandwidth: 1e9}]\n"
        f"tree: {{{json.dumps(EVIL)}: [n0], r1: [{json.dumps('n' + EVIL)}]}}\n"
    ),
    "scenario": (
        "cluster: {racks: [{name: r, nodes: 1, node: {gpus: 1, gpu_memory: 1GB}}]}\n"
        f"policy: fifo\njobs: [{{name: {json.dumps(EVIL)}, tasks: [{{compute_s: 1}}]}}]\n"
    ),
}


CASES: dict[str, tuple[str, ...]] = {
    "up": ("--state-dir here", "--queues {queues}", "--topology {tree}", "--scaling {queues}"),
    "down": ("-y --state-dir {evil}", "--dry-run"),
    "run": ("-- true", "--queue {title} -- true", "--gpus {title} -- true"),
    "submit": ("{job}", "{job} --wait", "{job} --after {title}", "{queues}", "--ray {title}"),
    "jobs": ("", "--all", "--watch", "--user {title}", "--queue {title}", "--state {title}",
             "--limit {title}"),
    "get": ("bad", "bad --task 0", "waits", "done", "done --output {evil}", "bad --output x",
            "old"),
    "why": ("bad", "waits", "waits/0", "lost", "old", "done/{title}"),
    "logs": ("bad", "bad -f", "done"),
    "cancel": ("waits --dry-run", "waits", "waits -y", "done"),
    "migrate": ("one", "done", "runs --dry-run", "runs --to {title}", "runs --from {title}"),
    "drain": ("n0 --reason {evil}", "n0 --reason bad --dry-run", "{title}"),
    "resume": ("n0", "n9", "{title}"),
    "label": ("n0", "n0 {title}", "n0 ml-", "--file {queues}", "{title}"),
    "scale": ("", "--dry-run"),
    "nodes": ("", "-o wide"),
    "queues": ("", "-o wide", "apply {queues} --dry-run", "assign bad {title}", "{title}"),
    "top": ("", "--links"),
    "topology": ("", "{tree}", "--svg {evil}/x", "{tree} --set", "--nvidia-smi {queues}"),
    "plan": ("", "--nodes 1", "--policy headgate", "--nodes 1 --like {title}", "--report {queues}"),
    "policies": ("", "{title}"),
    "simulate": ("{scenario}", "{queues}", "{scenario} --policy {title}", "--trace {queues}",
                 "--policy fifo --gpus 4 --trace {title}"),
    "demo": ("--policy {title}", "--policy fifo"),
    "data put": ("{queues} --name new", "{evil}", "{queues} --name {title}",
                 "{queues} --shard {title}"),
    "data ls": ("", "set", "{title}"),
    "data rm": ("set --dry-run", "set -y", "{title}"),
    "pack": ("--pods {evil} --nodes {evil}", "--pods {tree} --nodes {tree}", "--policy {title}"),
    "reproduce flow": ("--out {evil}", "--policies {title}"),
    "reproduce histories": ("--out {evil}", "--traces {title}"),
    "reproduce closed-partition": ("--out {evil}",),
    "reproduce packing": ("--out {evil} --pods {evil} --nodes {evil}",),
    "reproduce spillover": ("--out {evil}",),
    "reproduce label-queues": ("--out {evil}",),
}  # fmt: skip
"""By verb: the arguments of command lines that read and print what others have named."""


def test_every_verb_has_a_case() -> None:
    assert set(CASES) == set(VERBS)


@pytest.fixture(params=[False, True], ids=["pipe", "terminal"])
def hostile(
    up: Any,
    controller: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Callable[[str], list[str]]:
    """A function that returns the words of a command line on a cluster where every name is evil.

    The output of programs is so on a terminal only: into a pipe, it goes unchanged.
    """
    monkeypatch.setattr(EscapedJSON, "render", JSONResponse.render)
    monkeypatch.setattr(Client, "events", lambda self: iter([{"jobs": {"active": 1}}]))
    monkeypatch.setattr(cluster, "start_cluster", fail)
    monkeypatch.setattr(lifecycle, "start_cluster", start)
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: request.param, raising=False)
    controller.admins = {ME}
    fill(controller, log=f"{TITLE}\n" if request.param else "Progress\n")
    names = {"evil": EVIL, "title": TITLE, **{name: f"{name}.yaml" for name in FILES}}
    (tmp_path / EVIL).touch()
    for name, text in FILES.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return lambda case: [word.format(**names) for word in case.split()]


def fail(*_: Any, **__: Any) -> None:
    raise WorldError([Problem(path=EVIL, problem=EVIL, hint=EVIL)])


def start(*_: Any, show_progress: Callable[[str], None], **__: Any) -> dict[str, Any]:
    """Stand for the start of a cluster that other programs use, too."""
    show_progress(EVIL)
    return {"already_running": False, "nodes": 2, "policy": EVIL, "notes": [EVIL, EVIL]}


def fill(controller: Any, log: str) -> None:
    """Give the cluster jobs, nodes, datasets, orders and logs of evil names."""
    now, controller.policy_name = controller.clock, "headgate"

    def submit(job_id: str, text: str, **names: Any) -> None:
        names = {"name": EVIL, **names}
        job = expand(load_job(text), job_id=job_id, user=ME, datasets={}, file_sizes={})
        controller.handle(JobSubmitted(at=now, job=replace(job, **names)))

    evil_node = Node(id=f"n{EVIL}", rack=EVIL, gpus=(Gpu(memory_bytes=9 << 30, model=EVIL),) * 2)
    controller.handle(
        QueueChanged(at=now, queue=Queue(name=EVIL)),
        NodeJoined(at=now, node=evil_node),
        NodeJoined(at=now, node=Node(id="n2", rack=EVIL, gpus=(Gpu(memory_bytes=9 << 30),) * 4)),
        ReplicaAdded(at=now, shard=Shard(id="set:0", size_bytes=9), node=evil_node.id),
        DatasetAdded(
            at=now,
            dataset=Dataset(name="set", user=EVIL, shards=(Shard(id="set:0", size_bytes=9),)),
        ),
        ScalingChanged(
            at=now,
            scaling=Scaling(
                shapes=(Shape(name=f"big{EVIL}", gpus=(Gpu(memory_bytes=1 << 30),) * 8),)
            ),
        ),
    )
    for job, outcome in (("bad", EVIL), ("old", EVIL), ("done", b"x")):
        controller.on_launch = lambda launch, end=outcome: end
        submit(job, "{run: 'true'}")
        controller.logs.update({(job, 0, run): log for run in (1, 2, 3)})
    controller.move_to_archive("old")
    controller.on_launch = lambda launch: None
    ring = "communication: {pattern: all-reduce-ring, bytes_per_step: 10, step_s: 1.0}"
    submit("one", "{run: x, resources: {gpu_memory: 8GiB}}")
    submit("runs", f"{{num_nodes: 3, run: x, {ring}}}")
    submit(f"j{EVIL}", f"{{num_nodes: 3, run: x, {ring}}}", user=EVIL, queue=EVIL)
    submit("waits", "{run: x, resources: {gpus: 4}}", user=EVIL)
    submit("lost", "{run: x, resources: {gpus: 8}}", queue=EVIL)
    controller.handle(NodeDraining(at=now, node="n1", by=EVIL, reason=EVIL))
    for order in controller.snapshot().fleet.orders:
        controller.handle(OrderFailed(at=now, order=order, message=EVIL))
    controller.on_launch = lambda launch: EVIL
    spare = (Gpu(memory_bytes=1 << 30),) * 2  # not enough for those that wait, nor reserved
    controller.handle(NodeJoined(at=now, node=Node(id="n3", rack=EVIL, gpus=spare)))


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_passes_on_an_escape_or_a_line(up: Any, hostile: Any, verb: str) -> None:
    for case in (*CASES[verb], "--{title}", "{title} {evil} {evil}"):
        for chosen in ("table", "json"):
            output = up(*verb.split(), "-o", chosen, *hostile(case))
            written = output.out + output.err
            assert written, case
            assert MARKS.search(written) is None, (case, chosen, written)
            assert LINES.search(written) is None, (case, chosen, written)
