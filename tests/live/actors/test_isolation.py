"""Attacks of one user's runs on Headgate's files and other users must fail."""

from __future__ import annotations

import asyncio
import os
import pwd
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.live.accounts import OTHER, USER, readable_python, root_only

from headgate.base.errors import WorldError
from headgate.live.actors.executor import TaskExecutor, shards_directory, token_path
from headgate.live.base import account
from headgate.live.base.permissions import remove_tree, write_private
from headgate.live.base.records import LaunchRecord, OutcomeKind, OutcomeRecord
from headgate.live.node import shared as shared_module
from headgate.live.node.run_logs import log_path
from headgate.live.node.shared import copy_shared, find_shared, keep_shared, remove_shared
from headgate.live.node.store import ShardStore
from headgate.model import (
    Demand,
    Locality,
    ProgramType,
    Read,
    RunEnvironment,
    RunId,
    Shard,
    Stage,
    TaskProgram,
)

pytestmark = root_only
__all__ = ["readable_python"]
UID, OTHER_UID = pwd.getpwnam(USER).pw_uid, pwd.getpwnam(OTHER).pw_uid
TOKEN = "the token of the shard services"


def _id(number: int) -> RunId:
    return RunId("job-1", number, 1)


class Node:
    """The directory of a node, and runs on it, one after the other in the same executor."""

    def __init__(self, base: Path) -> None:
        """Lay a shard `held` of root's and the token there."""
        self.base, self.root = base, base / "nodes"
        TaskExecutor(node="n0", root=str(self.root))  # makes the directories
        write_private(token_path(self.root, "n0"), TOKEN)
        self.store = ShardStore(shards_directory(self.root, "n0"))
        self.store.put("held", [b"the shard"])

    def run(self, *commands: str, **options: Any) -> list[OutcomeRecord]:
        """Run commands, each a task of one job, and return how they ended."""
        return asyncio.run(self._run(commands, **options))

    async def _run(self, commands: Sequence[str], **options: Any) -> list[OutcomeRecord]:
        executor = TaskExecutor(node="n0", root=str(self.root), linger_s=60)
        outcomes = []
        for number, command in enumerate(commands):
            await executor.begin([self.launch(number, command, **options)])
            outcomes.append(await asyncio.wait_for(executor.outcome(_id(number)), 60))
        await executor.close()
        return outcomes

    def launch(
        self,
        number: int,
        run: str,
        *,
        user: str = USER,
        kind: str = "command",
        reads: Sequence[str] = (),
        envs: dict[str, str] | None = None,
        checkpoint: Path | None = None,
        parts: int = 1,
        results_path: str = "",
        directory: Path | None = None,
        setup: tuple[str, ...] = (),
    ) -> LaunchRecord:
        """Build the record of a run."""
        stage = Stage(
            first=0,
            count=number + 1,
            program_type=ProgramType(kind),
            run=run,
            checkpoint=str(checkpoint or ""),
        )
        program = TaskProgram(
            user=user,
            stage=stage,
            index=number,
            envs=envs or {},
            parts=parts,
            results_path=results_path,
            environment=RunEnvironment(directory=str(directory or ""), setup=setup),
        )
        found = tuple(
            Read(shard=Shard(id=name, size_bytes=9), locality=Locality.NODE, sources=())
            for name in reads
        )
        return LaunchRecord(
            run=_id(number),
            node="n0",
            ray_id="",
            gpus=(),
            reads=found,
            addresses={},
            holds=Demand(),
            program=program,
        )

    def module(self, name: str, text: str) -> dict[str, str]:
        """Write a module that any user can import, and return the settings that find it."""
        place = self.base / "modules"
        place.mkdir(exist_ok=True)
        place.chmod(0o755)
        file = place / f"{name}.py"
        file.write_text(text)
        file.chmod(0o644)
        return {"PYTHONPATH": str(place)}

    def result(self, number: int = 0) -> str:
        """Return the result of a run as text."""
        return self.store.path(f"job-1/{number}").read_text()

    def log(self, number: int = 0) -> str:
        """Return the log of a run."""
        return log_path(self.root, "n0", _id(number)).read_text()


@pytest.fixture
def node(readable_python: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setenv("HG_SECRET", "known to the one who started Headgate")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/the/token")
    before = os.umask(0o022)
    base = Path(tempfile.mkdtemp(prefix="hg-isolation-", dir="/tmp"))
    base.chmod(0o711)
    yield Node(base)
    remove_tree(base)
    os.umask(before)


def finished(outcomes: Sequence[OutcomeRecord]) -> None:
    assert [(o.kind, o.message) for o in outcomes] == [(OutcomeKind.FINISHED, "")] * len(outcomes)


def failed(outcomes: Sequence[OutcomeRecord]) -> str:
    (outcome,) = outcomes
    assert outcome.kind is OutcomeKind.FAILED
    return outcome.message


def test_run_has_its_users_identity_and_a_directory_of_its_own(node: Node) -> None:
    finished(node.run("id -u > {output}; id -g >> {output}; id -G >> {output}; stat -c '%u %a' ."))
    entry = pwd.getpwnam(USER)
    groups = " ".join(map(str, os.getgrouplist(USER, entry.pw_gid)))
    assert node.result() == f"{entry.pw_uid}\n{entry.pw_gid}\n{groups}\n"
    assert node.log() == f"{entry.pw_uid} 700\n"


def test_run_of_root_stays_root(node: Node) -> None:
    finished(node.run("id -u > {output}", user="root"))
    assert node.result() == "0\n"


def test_environment_is_that_of_a_login_and_what_the_job_sets(
    node: Node, readable_python: str
) -> None:
    finished(node.run("tr '\\0' '\\n' < /proc/$PPID/environ > {output}", envs={"MINE": "1"}))
    found = dict(line.split("=", 1) for line in node.result().splitlines())
    path = found.pop("PATH")
    assert path.split(":")[0] == str(Path(readable_python).parent)
    assert found == {
        "CUDA_VISIBLE_DEVICES": "",
        "HEADGATE_JOB": "job-1",
        "HEADGATE_NODE": "n0",
        "HOME": pwd.getpwnam(USER).pw_dir,
        "LANG": "C.UTF-8",
        "LOGNAME": USER,
        "MINE": "1",
        "USER": USER,
    }


def test_environments_of_headgates_processes_are_out_of_reach(node: Node) -> None:
    finished(
        node.run(
            "pid=$$; while [ $pid -gt 1 ]; do\n"
            "  cat /proc/$pid/environ && echo $pid\n"
            "  pid=$(awk '/^PPid/ {print $2}' /proc/$pid/status)\n"
            "done > {output}; true",
        )
    )
    assert "known to the one" not in node.result()
    assert "RAY_" not in node.result()
    assert str(os.getpid()) not in node.result().split()


def test_no_setting_of_a_job_reaches_a_process_of_root(node: Node) -> None:
    """A library of the user's, preloaded into a process of root, would be root."""
    settings = {"LD_PRELOAD": "/tmp/absent.so", "MINE": "1"}
    guards = asyncio.run(_guards_during(node, settings))
    assert [(guard["uids"].real, guard["environ"]) for guard in guards] == [(0, {})]


async def _guards_during(node: Node, envs: dict[str, str]) -> list[dict[str, Any]]:
    executor = TaskExecutor(node="n0", root=str(node.root))
    others = psutil.Process().children()  # which other tests have left
    await executor.begin([node.launch(0, "sleep 1000", envs=envs)])
    children: list[psutil.Process] = []
    while not any(child.children(recursive=True) for child in children):
        await asyncio.sleep(0.1)
        children = [child for child in psutil.Process().children() if child not in others]
    found = [child.as_dict(["uids", "environ"]) for child in children]
    await executor.close()
    return found


@pytest.mark.parametrize(
    "attack",
    [
        "cat {root}/n0/shard-token",
        "ls {root}/n0/shards",
        "cat {held}",
        "ls {root}/n0/logs",
        "ls {root}/n0/runs",
        "ls {root}/n0/runs/job-1",
        "ls {root}/n0/runs/first-run",
        "cat {root}/n0/runs/first-run/shard-0",
        "mv {root}/n0/runs/job-1/0.1 {root}/n0/runs/job-1/9",
        "ln -s / {root}/n0/runs/job-1/1",
        "cat /etc/shadow",
    ],
)
def test_run_cannot_reach(node: Node, attack: str) -> None:
    others = node.root / "n0" / "runs" / "first-run"
    others.mkdir(mode=0o700)
    node.store.provide("held", others / "shard-0", uid=OTHER_UID)
    os.chown(others, OTHER_UID, OTHER_UID)
    attack = attack.format(root=node.root, held=node.store.path("held"))
    finished(node.run(f"! {attack} > out 2>&1 || cp out {{output}}; cat out"))
    assert node.result() == ""
    assert "denied" in node.log() or "not permitted" in node.log()


def test_shard_is_read_and_never_changed_by_a_run(node: Node) -> None:
    finished(
        node.run(
            "cat {shard} > {output}\n"
            "! echo bad > {shard}; ! echo bad >> {shard}; ! chmod 666 {shard}; ! touch {shard}\n"
            "! truncate -s 0 {shard}; ! dd if=/dev/zero of={shard} conv=notrunc\n"
            "rm -f {shard}; echo bad > {shard}",
            reads=["held"],
        )
    )
    assert node.result() == "the shard"
    assert node.store.path("held").read_bytes() == b"the shard"
    assert ShardStore(shards_directory(node.root, "n0")).verify("held")


@pytest.mark.parametrize("change", ["echo bad >> {shard}", "echo bad > {shard}", ": > {shard}"])
def test_run_of_root_changes_its_own_copy_of_a_shard_alone(node: Node, change: str) -> None:
    spoil, look = f"{change}; cat {{shard}} > {{output}}", "cat {shard} > {output}"
    finished(node.run(spoil, look, user="root", reads=["held"]))
    assert node.result(0) != "the shard"
    assert node.result(1) == "the shard"
    finished(node.run(look, reads=["held"]))
    assert node.result() == "the shard"
    assert ShardStore(shards_directory(node.root, "n0")).verify("held")


def test_result_of_a_task_is_whole_after_a_task_of_root_has_changed_its_input(node: Node) -> None:
    spoil = "echo bad >> {shard}; cat {shard} > {output}"
    made = node.store.put("job-0/0", [b"a result"])
    finished(node.run(spoil, "cat {shard} > {output}", user="root", reads=["job-0/0"]))
    assert (node.result(0), node.result(1)) == ("a resultbad\n", "a result")
    assert node.store.find("job-0/0") == made


@pytest.mark.parametrize("user", [USER, "root"])
def test_run_changes_its_own_copy_of_a_result_on_the_shared_path_alone(
    node: Node, user: str
) -> None:
    """Its file there belongs to the user: the run got that itself."""
    place = node.base / "place"
    place.mkdir()
    os.chown(place, UID, UID)
    keep_shared(str(place), "job-0/0", node.store.path("held"), user=user)
    (outcome,) = node.run(
        "cat {shard} > {output}; chmod 600 {shard}; echo bad >> {shard}; true",
        user=user,
        reads=["job-0/0"],
        results_path=str(place),
    )
    finished([outcome])
    assert outcome.usage.read_bytes[Locality.CLUSTER] == 9
    assert node.result() == "the shard"
    assert (place / "job-0" / "0").read_text() == "the shard"


@pytest.mark.parametrize(
    "plant",
    [
        "ln -s {secret} {{output}}",
        "ln -s {theirs} {{output}}",
        "ln -s . {{output}}",
        "ln -s /dev/zero {{output}}",
        "mkdir {{output}}",
        "mkfifo {{output}}",
    ],
)
def test_result_that_is_not_a_file_of_its_user_is_rejected(node: Node, plant: str) -> None:
    secret, theirs = node.base / "secret", node.base / "theirs"
    secret.write_text("root's")
    secret.chmod(0o600)
    theirs.write_text("daemon's own")
    os.chown(theirs, UID, UID)
    outcome = failed(node.run(plant.format(secret=secret, theirs=theirs)))
    assert "is not a file of its user" in outcome
    assert node.store.find("job-1/0") is None


def test_hard_link_to_a_file_of_another_user_is_rejected_as_a_result(node: Node) -> None:
    """With a kernel that permits hard links to unreadable files (protected_hardlinks=0)."""
    secret = node.base / "secret"
    secret.write_text("root's")
    secret.chmod(0o600)
    link = f"ln {secret} {node.root}/n0/runs/job-1/0.1/output"
    planted = asyncio.run(_with_planted(node, link))
    assert "is not a file of its user" in failed([planted])


async def _with_planted(node: Node, link: str) -> OutcomeRecord:
    executor = TaskExecutor(node="n0", root=str(node.root))
    await executor.begin([node.launch(0, "until [ -e {output} ]; do sleep 0.1; done")])
    planter = await asyncio.create_subprocess_shell(
        f"until {link}; do sleep 0.1; done 2> /dev/null"
    )
    assert await asyncio.wait_for(planter.wait(), 60) == 0
    outcome = await asyncio.wait_for(executor.outcome(_id(0)), 60)
    await executor.close()
    return outcome


def test_no_part_is_kept_when_one_of_them_is_a_link(node: Node) -> None:
    plant = "cd ..; echo a > output-0; ln -s /etc/shadow output-1"
    assert "'output-1' is not a file" in failed(node.run(plant, parts=2))
    assert node.store.find("job-1/0.0") is None


def test_result_cannot_be_changed_after_the_run(node: Node) -> None:
    keep_open = "exec 7<> {output}; echo good >&7; setsid sh -c 'sleep 2; echo bad >&7' & sleep 0.1"
    finished(node.run(keep_open))
    assert node.result() == "good\n"
    assert node.store.path("job-1/0").stat().st_uid == 0


def test_growing_result_is_copied_up_to_its_size_when_opened(node: Node) -> None:
    command = "echo good > {output}; setsid sh -c 'while :; do cat /dev/zero; done >> {output}' &"
    finished(node.run(f"{command} sleep 0.1"))
    assert node.result().startswith("good")


def test_directory_of_another_user_is_rejected_as_that_of_a_node(node: Node) -> None:
    target = node.base / "target"
    target.mkdir(mode=0o755)
    (node.root / "n1").symlink_to(target)
    (node.root / "n2").mkdir()
    os.chown(node.root / "n2", UID, UID)
    for name in ("n1", "n2"):
        with pytest.raises(WorldError, match=name):
            TaskExecutor(node=name, root=str(node.root))
    assert list(target.iterdir()) == []


def test_checkpoint_directory_is_its_users(node: Node) -> None:
    place = node.base / "shared"
    place.mkdir()
    place.chmod(0o1777)
    command = 'stat -c "%u %a" "$HEADGATE_CHECKPOINT" > {output}; touch "$HEADGATE_CHECKPOINT/x"'
    finished(node.run(command, checkpoint=place))
    assert node.result() == f"{UID} 700\n"
    assert list(place.iterdir()) == [], "a finished task needs it no more"


def test_checkpoint_that_is_not_the_users_own_directory_is_rejected(node: Node) -> None:
    place, target = node.base / "shared", node.base / "target"
    place.mkdir()
    target.mkdir()
    (target / "kept").touch()
    place.chmod(0o1777)
    (place / "job-1.0").symlink_to(target)
    os.lchown(place / "job-1.0", OTHER_UID, OTHER_UID)
    message = failed(node.run("touch $HEADGATE_CHECKPOINT/x", checkpoint=place))
    assert "checkpoint" in message
    assert [file.name for file in target.iterdir()] == ["kept"]
    (place / "job-1.0").unlink()
    (place / "job-1.0").mkdir(mode=0o777)
    assert "checkpoint" in failed(node.run("true", checkpoint=place))


def test_checkpoint_where_the_user_may_not_write_is_not_made(node: Node) -> None:
    place = node.base / "roots"
    place.mkdir(mode=0o755)
    (place / "job-1.0").mkdir()
    (place / "job-1.0" / "kept").touch()
    assert "checkpoint" in failed(node.run("true", checkpoint=place))
    assert (place / "job-1.0" / "kept").exists()


def test_plain_file_is_opened_with_its_users_rights(node: Node) -> None:
    secret = node.base / "secret"
    secret.write_text("root's")
    secret.chmod(0o600)
    message = failed(node.run("cat {shard} > {output}", reads=[f"file:{secret}"]))
    assert f"cannot read '{secret}'" in message
    secret.chmod(0o644)
    finished(node.run("cat {shard} > {output}", reads=[f"file:{secret}"]))
    assert node.result() == "root's"


def test_log_is_its_users_in_a_directory_that_is_closed(node: Node) -> None:
    finished(node.run("echo one >> /dev/stdout; echo two >> /dev/stderr", "echo three"))
    assert sorted(node.log(0).split()) == ["one", "two"]
    assert node.log(1) == "three\n"
    log = log_path(node.root, "n0", _id(0))
    assert (log.stat().st_uid, stat.S_IMODE(log.stat().st_mode)) == (UID, 0o600)
    assert stat.S_IMODE(log.parent.stat().st_mode) == 0o700


def test_processes_that_left_the_session_end_with_the_worker(node: Node) -> None:
    command = (
        "setsid sleep 1234 & setsid setsid sh -c 'sleep 1235 & sleep 1236' & sleep 0.3; echo $!"
    )
    finished(node.run(command))
    words = [["sleep", number] for number in ("1234", "1235", "1236")]
    left = [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] in words]
    assert left == []


AS_ONE_ACCOUNT = """
import sys
from pathlib import Path
from tests.live.actors.test_isolation import Node
node = Node(Path(sys.argv[1]))
command = "id -u > {output}; cat {shard} >> {output}; ! echo bad >> {shard}; env >&2"
(outcome,) = node.run(command, user="no-such-user", reads=["held"])
print(outcome.kind, outcome.message, node.result())
"""


def test_without_root_all_runs_have_the_account_of_headgate(
    readable_python: str, node: Node
) -> None:
    place = node.base / "own"
    place.mkdir()
    os.chown(place, UID, UID)
    options = account.account_for(USER).options({"PYTHONPATH": str(Path(__file__).parents[3])})
    done = subprocess.run(
        [readable_python, "-c", AS_ONE_ACCOUNT, str(place)],
        **options,
        capture_output=True,
        check=False,
        text=True,
        timeout=100,
    )
    assert done.stdout.split() == ["finished", str(UID), "the", "shard"], done.stderr


def test_user_who_does_not_exist_fails_the_run_with_name_and_node(node: Node) -> None:
    message = failed(node.run("true", user="not-a-user"))
    assert "'not-a-user'" in message
    assert "n0" in message


def test_function_finds_modules_of_the_jobs_python_path(node: Node) -> None:
    modules = node.module(
        "mine",
        "import os\ndef main(task):\n    task.output.write_text(f'{os.getuid()} {os.getcwd()}')\n",
    )
    finished(node.run("mine:main", kind="function", envs=modules))
    assert node.result() == f"{UID} {node.root}/n0/runs/job-1/0.1/files"


def test_interpreter_that_the_user_cannot_run_fails_the_run_clearly(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = node.base / "closed"
    closed.mkdir(mode=0o700)
    (closed / "python").symlink_to(account.INTERPRETER)
    monkeypatch.setattr(account, "INTERPRETER", str(closed / "python"))
    message = failed(node.run("true"))
    assert "Permission denied" in message
    assert str(closed / "python") in message


@pytest.mark.parametrize("answer", ["{}", "5", "nonsense", '{"status": "x"}', "x" * (2 << 20)])
def test_forged_response_fails_the_run_and_ends_its_processes(node: Node, answer: str) -> None:
    modules = node.module(
        "forge",
        "import os, subprocess, sys, time\n"
        "def main(task):\n"
        "    subprocess.Popen(['sleep', '4321'], start_new_session=True)\n"
        f"    text = {answer!r}.encode() + b'\\n'\n"
        "    while text:\n"
        "        text = text[os.write(int(sys.argv[2]), text):]\n"
        "    time.sleep(1000)\n",
    )
    failed(node.run("forge:main", kind="function", envs=modules))
    sleeping = [
        p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "4321"]
    ]
    assert sleeping == []


def test_directory_too_deep_for_python_is_removed(node: Node) -> None:
    """As its removal failed, the run would have no end and be repeated without end."""
    dig = "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')"
    finished(node.run(f'python -c "{dig}"'))
    assert list((node.root / "n0" / "runs").glob("job-1/*")) == []


def test_shared_result_is_kept_and_removed_with_its_users_rights(node: Node) -> None:
    """Otherwise a path in a job file has root write, read and remove where its user may not."""
    closed, place = node.base / "closed", node.base / "place"
    closed.mkdir(mode=0o700)
    (closed / "job-1").mkdir()
    (closed / "job-1" / "0").write_text("9 letters")
    place.mkdir()
    os.chown(place, UID, UID)
    shard = Shard(id="job-1/0", size_bytes=9)
    source = node.store.path("held")
    with pytest.raises(WorldError, match=str(closed)):
        keep_shared(str(closed), "job-1/1", source, user=USER)
    assert find_shared(str(closed), shard, user=USER) is None
    remove_shared(str(closed), "job-1", user=USER)
    assert [file.name for file in (closed / "job-1").iterdir()] == ["0"]

    keep_shared(str(place), "job-1/0", source, user=USER)
    found = (place / "job-1" / "0").stat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (UID, 0o600)
    assert find_shared(str(place), shard, user=USER) == place / "job-1" / "0"
    (place / "job-1" / "0").unlink()
    (place / "job-1" / "0").symlink_to(closed / "job-1" / "0")
    assert not copy_shared(str(place), shard, node.base / "copy", user=USER)
    remove_shared(str(place), "job-1", user=USER)
    assert (closed / "job-1" / "0").read_text() == "9 letters"


def _line(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return process.cmdline()
    return []


def test_shared_path_that_does_not_respond_is_left_with_all_processes(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_module, "_GRACE_S", 0.5)
    monkeypatch.setattr(shared_module, "_KEEP", "sleep 98765.25; true")
    with pytest.raises(WorldError, match="did not respond within") as caught:
        keep_shared(str(node.base), "job-1/0", node.store.path("held"), user=USER)
    assert caught.value.code == "shard_store"
    assert not [p for p in psutil.process_iter() if "98765.25" in _line(p)]


def test_shared_file_that_is_replaced_by_a_pipe_after_its_check_is_not_waited_for(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = node.base / "shared" / "j" / "0"
    pipe.parent.mkdir(parents=True)
    os.mkfifo(pipe)
    monkeypatch.setattr(shared_module, "find_shared", lambda *_, **__: pipe)
    shard, to = Shard(id="j/0", size_bytes=4), node.base / "copy"
    with ThreadPoolExecutor(1) as thread:
        copied = thread.submit(copy_shared, str(node.base / "shared"), shard, to, user=USER)
        try:
            assert copied.result(timeout=20) is False
        finally:
            with suppress(OSError):  # releases a process that waits for a writer
                os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
