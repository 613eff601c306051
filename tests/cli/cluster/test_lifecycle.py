"""`up` and `down`: the controller's process, options, failures, and a whole cycle on Ray."""

from __future__ import annotations

import json
import os
import pwd
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import pytest

from headgate.base.errors import SpecError, WorldError
from headgate.cli.cluster import cluster, joining, process
from headgate.live.base.config import ControllerConfig, load_config, save_config
from headgate.live.cluster.ray_nodes import LocalCluster, alive, start_nodes, stop_nodes
from headgate.model import Gpu, Node, Queue
from headgate.spec.queues import load_queues

DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(600)
"""


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[Any]:
    """A function that starts processes with the command lines of controllers."""
    (tmp_path / "headgate").mkdir()
    (tmp_path / "headgate" / "__init__.py").touch()
    (tmp_path / "headgate" / "app.py").write_text(DEAF)
    # An editable install is found before PYTHONPATH.
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "sys.meta_path = [f for f in sys.meta_path if 'editable' not in type(f).__module__]\n"
    )
    started = []

    def start(state: Path) -> int:
        command = process.controller_command(state)
        child = subprocess.Popen(
            command, env={**os.environ, "PYTHONPATH": str(tmp_path)}, stdout=subprocess.PIPE
        )
        started.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == b"deaf\n"
        return child.pid

    yield start
    for child in started:
        child.kill()
        child.communicate()


def test_end_controllers_ends_only_those_of_its_state_directory(
    stand_in: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = stand_in(tmp_path / "mine"), stand_in(tmp_path / "mine-too")
    assert [p.pid for p in process.controllers(tmp_path / "mine")] == [mine]
    monkeypatch.setattr(process, "_END_S", 0.2)
    assert process.end_controllers(tmp_path / "mine") == 1
    assert process.controllers(tmp_path / "mine") == []
    assert psutil.pid_exists(other)
    assert process.end_controllers(tmp_path / "mine") == 0


def test_a_second_up_or_down_in_a_directory_is_busy(tmp_path: Path) -> None:
    first = process.alone(tmp_path)
    with first, pytest.raises(WorldError, match="running here"), process.alone(tmp_path):
        pass
    with process.alone(tmp_path):
        pass


def test_up_without_ray_names_the_command_that_installs_it_and_makes_nothing(
    headgate: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for how in (("--nodes", "1"), ("--address", "127.0.0.1:1")):
        output = headgate("up", *how, "--state-dir", str(tmp_path / "new"), "-o", "json")
        (problem,) = output.error["problems"]
        assert (output.code, problem["problem"][:24]) == (1, "Ray is not installed for")
        assert problem["hint"] == f"{sys.executable} -m pip install 'headgate[live]'"
    assert not (tmp_path / "new").exists()


def test_down_of_another_user_is_refused_with_whom_to_ask(
    headgate: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hg").mkdir()
    owner = pwd.getpwuid(os.getuid()).pw_name
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    output = headgate("down", "-y", "--state-dir", str(tmp_path / "hg"), "-o", "json")
    assert (output.code, output.error["code"]) == (2, "forbidden")
    (problem,) = output.error["problems"]
    assert f"only {owner}" in problem["problem"]
    assert problem["hint"].startswith(f"ask {owner}")


def test_down_without_a_headgate_succeeds(headgate: Any, tmp_path: Path) -> None:
    output = headgate("down", "--state-dir", str(tmp_path / "none"), "-o", "json")
    assert output.code == 0
    assert (output.json["controllers"], output.json["nodes"]) == (0, 0)
    assert not (tmp_path / "none").exists()


def test_up_reports_a_running_headgate(up: Any, state: Path) -> None:
    output = up("up", "-o", "json")
    assert output.code == 0
    assert output.json == {
        "state": str(state), "pid": os.getpid(), "policy": "fifo", "nodes": 2,
        "notes": [], "already_running": True,
    }  # fmt: skip


def test_up_with_invalid_options_is_rejected(up: Any, headgate: Any, state: Path) -> None:
    output = headgate("up", "--queues", "no-such-file", "--state-dir", str(state), "-o", "json")
    assert (output.code, output.error["problems"][0]["path"]) == (2, "no-such-file")
    output = headgate("up", "--group", "no-such-group-here", "--state-dir", str(state / "new"))
    assert (output.code, "no group" in output.err) == (2, True)


def test_a_saved_configuration_is_loaded_unchanged(tmp_path: Path) -> None:
    assert load_config(tmp_path) is None
    config = ControllerConfig(
        policy="fs",
        ray_address="127.0.0.1:6379",
        parameters={"omega": 1.5},
        seed=3,
        queues=(Queue(name="team", weight=2.0, max_gpus=4),),
        foreign=True,
    )
    save_config(tmp_path, config)
    assert load_config(tmp_path) == config
    (tmp_path / "config.json").write_text('{"policy": "fs"')
    with pytest.raises(WorldError, match="cannot be read"):
        load_config(tmp_path)


def test_load_queues_reports_all_problems(tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text("queues:\n- {name: a, weight: 2}\n- {name: b, max_gpus: 3}\n")
    assert load_queues(file) == (Queue(name="a", weight=2.0), Queue(name="b", max_gpus=3))
    file.write_text("queues:\n- {name: a, wait: 2}\n- {name: a, weight: -1}\nother: 1\n")
    with pytest.raises(SpecError) as wrong:
        load_queues(file)
    assert [p.path for p in wrong.value.problems] == [
        "queues[0].wait", "queues[1].name", "queues[1].weight", "other",
    ]  # fmt: skip
    file.write_text("queues: []\n")
    with pytest.raises(SpecError, match="must be a list"):
        load_queues(file)


def environments_with(text: bytes) -> list[int]:
    """Return the ids of processes with a text in their environment or command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if text in (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


@pytest.mark.live
def test_jobs_survive_a_crash_of_the_controller_between_up_and_down(
    headgate: Any, state: Path, job_file: Any
) -> None:
    there = ("--state-dir", str(state), "-o", "json")
    first = headgate("up", "--nodes", "2", "--gpus", "1", "--policy", "fifo", *there)
    assert (first.code, first.json["nodes"], first.json["policy"]) == (0, 2, "fifo"), first.err
    try:
        run = "sleep 4; echo done > {output}"
        job = headgate("submit", job_file(f"{{run: '{run}'}}"), *there).json["id"]
        os.kill(first.json["pid"], signal.SIGKILL)
        while psutil.pid_exists(first.json["pid"]):
            os.waitpid(first.json["pid"], 0)  # it is a child of this process
        assert headgate("jobs", *there).error["code"] == "unreachable"
        again = headgate("up", *there)
        assert again.json["pid"] != first.json["pid"]
        assert (again.json["policy"], again.json["already_running"]) == ("fifo", False)
        end = time.monotonic() + 60
        while headgate("get", job, *there).json["state"] == "active" and time.monotonic() < end:
            time.sleep(0.3)
        assert headgate("get", job, *there).json["task_list"][0]["attempts"] == 1
        target = state / "result"
        assert headgate("get", job, "--output", str(target), *there).code == 0
        assert target.read_text() == "done\n"
    finally:
        ended = headgate("down", "-y", *there)
    assert ended.code == 0, ended.err
    assert environments_with(os.fsencode(state)) == []
    assert headgate("down", *there).json["controllers"] == 0


def test_nodes_that_only_the_journal_lists_have_not_joined_a_new_controller(
    socket: Path, state: Path, controller: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "n0" in cluster._joined(state)
    monkeypatch.setattr(controller, "reports", dict)
    assert cluster._joined(state) == set()


# --- options of up: checked, compared with the running Headgate, never ignored -------------------


@pytest.fixture
def running(up: Any, state: Path) -> Any:
    """The program, with a running Headgate and its configuration."""
    save_config(
        state,
        ControllerConfig(
            policy="fsp", parameters={"slack": 0.5}, ray_address="127.0.0.1:6379", seed=3,
            queues=(Queue(name="a"),),
        ),
    )  # fmt: skip
    return up


@pytest.mark.parametrize(
    "arguments",
    [
        "", "--policy fsp,slack=0.5", "--policy fsp,slack=0.5,alpha1=1.5", "--seed 3",
        "--probe-period 15", "--nodes 2", "--gpus 2 --racks 2", "--gpu-memory 4GiB",
        "--log-limit 64MiB",
    ],
)  # fmt: skip
def test_up_is_idempotent_for_options_in_force(running: Any, arguments: str) -> None:
    output = running("up", *arguments.split(), "-o", "json")
    assert (output.code, output.json["already_running"]) == (0, True), output.err


@pytest.mark.parametrize(
    ("arguments", "paths", "problem"),
    [
        ("--policy fsp", ["--policy"], "fsp,slack=0.5 is in force"),
        ("--policy fs --seed 4", ["--policy", "--seed"], "fsp,slack=0.5 is in force"),
        ("--nodes 3", ["--nodes"], "2 is in force"),
        ("--gpus 1 --racks 1", ["--gpus", "--racks"], "2 is in force"),
        ("--gpu-memory 8GiB", ["--gpu-memory"], "4 GiB is in force"),
        ("--gpu-model H100", ["--gpu-model"], "none is in force"),
        ("--probe-period 0", ["--probe-period"], "15 is in force"),
        ("--keep-results 30d", ["--keep-results"], "forever is in force"),
        ("--retain 2h", ["--retain"], "1 d is in force"),
        ("--log-limit 1GiB", ["--log-limit"], "64 MiB is in force"),
        ("--queues {queues}", ["--queues"], "other queues are in force"),
        ("--address 10.0.0.1:6379", ["--address"], "127.0.0.1:6379 is in force"),
    ],
)
def test_up_rejects_options_that_differ_from_the_running_headgate(
    running: Any, tmp_path: Path, arguments: str, paths: list[str], problem: str
) -> None:
    (tmp_path / "q.yaml").write_text("queues: [{name: b}]\n")
    arguments = arguments.format(queues=tmp_path / "q.yaml")
    output = running("up", *arguments.split(), "-o", "json")
    assert (output.code, output.error["code"]) == (2, "not_in_force")
    assert [p["path"] for p in output.error["problems"]] == paths
    assert output.error["problems"][0]["problem"] == problem
    assert "headgate down, then headgate up" in output.error["problems"][0]["hint"]


def test_sizes_of_virtual_nodes_are_rejected_on_a_joined_cluster(running: Any, state: Path) -> None:
    save_config(state, ControllerConfig(policy="fs", ray_address="10.0.0.5:6379", foreign=True))
    output = running("up", "--nodes", "2", "-o", "json")
    assert (output.code, output.error["problems"][0]["path"]) == (2, "--nodes")
    assert "10.0.0.5:6379 is joined" in output.error["problems"][0]["problem"]


def test_sizes_of_virtual_nodes_are_compared_with_the_recorded_nodes_while_some_are_down(
    running: Any, state: Path
) -> None:
    gpu = Gpu(memory_bytes=1 << 30, model="RTX 4090")
    nodes = {f"n{i}": Node(id=f"n{i}", rack=f"r{i // 2}", gpus=(gpu,)) for i in range(4)}
    cluster = LocalCluster(
        address="", mark="", temp="", logs="", token="", seats={}, sessions={}, nodes=nodes
    )
    (state / "ray.json").write_text(json.dumps(asdict(cluster)))
    given = ("--nodes", "4", "--gpus", "1", "--racks", "2", "--gpu-memory", "1GiB")
    given = (*given, "--gpu-model", "rtx-4090")
    assert running("up", *given, "-o", "json").code == 0
    output = running("up", "--racks", "1", "--gpu-model", "H100", "-o", "json")
    problems = [each["problem"] for each in output.error["problems"]]
    assert problems == ["2 is in force", "RTX 4090 is in force"]


def test_a_rejected_up_leaves_the_permissions_of_the_state_directory(
    running: Any, state: Path
) -> None:
    save_config(state, ControllerConfig(policy="fs", ray_address="10.0.0.5:6379", foreign=True))
    state.chmod(0o700)
    output = running("up", "--group", "daemon", "--shared-account", "-o", "json")
    assert (output.code, output.error["code"]) == (2, "not_in_force")
    assert [p["path"] for p in output.error["problems"]] == ["--group", "--shared-account"]
    assert output.error["problems"][1]["problem"] == "none is in force"
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert state.stat().st_gid == os.getegid()


@pytest.mark.parametrize(
    ("arguments", "paths"),
    [
        *((f"--address {address}", ["--address"]) for address in (
            "foo", "foo:", ":6379", "foo:0", "foo:65536", "foo:x", "ray://foo:1", "a:1:2", "auto",
        )),
        ("--address foo --nodes 2 --gpu-memory 1GiB", ["--address", "--nodes", "--gpu-memory"]),
        ("--address h:1 --token-file no-such-file", ["--token-file"]),
        ("--address h:1 --token-file /", ["--token-file"]),
        ("--address h:1 --token-file empty", ["--token-file"]),
        ("--token-file empty", ["--token-file", "--token-file"]),
        ("--nodes 1 --gpu-model H100 --gpu-model A100", ["--gpu-model"]),
        ("--gpu-model ...", ["--gpu-model"]),
        ("--policy fsp,slack=x", ["policy.slack"]),
        ("--policy fsp,slack=-1", ["policy.slack"]),
        ("--policy fsp,,", ["policy", "policy"]),
        ("--policy fsp;slack=1", ["policy"]),
    ],
)  # fmt: skip
def test_wrong_options_of_up_start_nothing(
    headgate: Any, state: Path, tmp_path: Path, arguments: str, paths: list[str]
) -> None:
    (tmp_path / "empty").touch()
    place = state / "new"
    output = headgate("up", *arguments.split(), "--state-dir", str(place), "-o", "json")
    assert (output.code, [p["path"] for p in output.error["problems"]]) == (2, paths)
    assert not place.exists()


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({}, None),
        ({"RAY_AUTH_TOKEN": "secret"}, "secret"),
        ({"RAY_AUTH_TOKEN": "secret", "RAY_AUTH_TOKEN_PATH": "named"}, "secret"),
        ({"RAY_AUTH_TOKEN_PATH": "named"}, "from a file"),
        ({"RAY_AUTH_TOKEN_PATH": "named", "RAY_AUTH_MODE": "TOKEN"}, "from a file"),
        ({"RAY_AUTH_TOKEN_PATH": "named", "RAY_AUTH_MODE": "disabled"}, None),
    ],
)
def test_a_token_is_found_where_ray_would_find_it(
    tmp_path: Path, settings: dict[str, str], found: str | None
) -> None:
    (tmp_path / "named").write_text("from a file")
    settings = {k: str(tmp_path / v) if v == "named" else v for k, v in settings.items()}
    path = joining.token(tmp_path, None, {"HOME": str(tmp_path), **settings})
    assert (None if path is None else Path(path).read_text()) == found
    assert joining.token(tmp_path, tmp_path / "named", settings) == str(tmp_path / "named")
    if found == "secret":
        assert path is not None
        assert Path(path).stat().st_mode & 0o777 == 0o600


def test_a_required_token_that_is_missing_is_an_error(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    with pytest.raises(SpecError, match="there is none"):
        joining.token(tmp_path, None, {**home, "RAY_AUTH_MODE": "token"})
    with pytest.raises(SpecError, match=r"RAY_AUTH_TOKEN_PATH: .*No such file"):
        joining.token(tmp_path, None, {**home, "RAY_AUTH_TOKEN_PATH": str(tmp_path / "none")})
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("ours")
    found = joining.token(tmp_path, None, home)
    assert found == str(tmp_path / ".ray" / "auth_token")


@pytest.mark.live
def test_up_joins_a_cluster_only_with_its_token(headgate: Any, state: Path) -> None:
    theirs = start_nodes(state / "ray", [Node(id="n0", rack="r0", gpus=())])
    try:
        ours = ("--state-dir", str(state / "hg"), "-o", "json")
        join = ("up", "--address", theirs.address, *ours)
        output = headgate(*join)
        assert (output.code, output.error["problems"][0]["path"]) == (2, "--token-file")
        assert output.error["problems"][0]["problem"].endswith("requires a token")
        (state / "wrong").write_text("0" * 64)
        output = headgate(*join, "--token-file", str(state / "wrong"))
        assert (output.code, output.error["problems"][0]["path"]) == (2, "--token-file")
        assert "rejects the token" in output.error["problems"][0]["problem"]
        output = headgate(*join, "--token-file", theirs.token)
        assert (output.code, output.err) == (0, "")
        assert headgate(*join).json["already_running"]
        assert headgate("down", "-y", *ours).code == 0
        assert alive(theirs) == ("head", "n0")
    finally:
        headgate("down", "-y", "--state-dir", str(state / "hg"))
        stop_nodes(state / "ray")
