"""Several users of one Headgate: rights of jobs, access to results and datasets, private files."""

from __future__ import annotations

import grp
import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.live import grpc_call
from tests.live.accounts import OTHER, USER, needs_filter, python_for_all, root_only
from tests.live.grpc_call import REFUSED
from tests.live.ray_programs import pair, seen
from tests.live.shared import Clusters
from tests.live.system import Gates, Headgate

from headgate.base.errors import SpecError
from headgate.live.cluster.ray_nodes import alive

pytestmark = [pytest.mark.live, *root_only]
with_filter = needs_filter[-1]
GROUP = USER  # its only member by name; others come in with its group alone

AS_ANOTHER = """
import json, os, pwd, sys
from pathlib import Path
from headgate.api.client import Client
from headgate.base.errors import HeadgateError
socket, name, groups, calls = Path(sys.argv[1]), sys.argv[2], *map(json.loads, sys.argv[3:])
user = pwd.getpwnam(name)
Client(socket).info()  # what is imported late is imported now: the files may be out of reach
os.setgroups(groups)
os.setgid(user.pw_gid)
os.setuid(user.pw_uid)
answers = []
with Client(socket) as client:
    for method, arguments, options in calls:
        try:
            answer = getattr(client, method)(*arguments, **options)
            answers.append(answer if method != "result" else b"".join(answer).decode())
        except HeadgateError as error:
            answers.append(error.code)
print(json.dumps(answers))
"""


class Caller:
    """A user who calls the API."""

    def __init__(self, headgate: Headgate, user: str, *groups: str) -> None:
        self._socket, self._user = str(headgate.state / "headgate.sock"), user
        self._groups = json.dumps([grp.getgrnam(group).gr_gid for group in groups])

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Make one call and return its answer, or the code of its error."""
        (answer,) = self.calls((method, arguments, options))
        return answer

    def calls(self, *calls: tuple[str, tuple[Any, ...], dict[str, Any]]) -> list[Any]:
        """Make several."""
        command = [sys.executable, "-W", "ignore", "-c", AS_ANOTHER]
        done = subprocess.run(
            [*command, self._socket, self._user, self._groups, json.dumps(calls)],
            capture_output=True,
            check=False,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        answers: list[Any] = json.loads(done.stdout)
        return answers


@pytest.fixture(scope="module")
def headgate(clusters: Clusters) -> Iterator[Headgate]:
    up, python = (f"--group={GROUP}",), python_for_all()
    with clusters.lend(__name__, nodes=2, gpus=2, up=up, python=python) as headgate:
        yield headgate


@pytest.fixture
def member(headgate: Headgate) -> Caller:
    return Caller(headgate, USER, GROUP)


@pytest.fixture
def colleague(headgate: Headgate) -> Caller:
    return Caller(headgate, OTHER, GROUP)


def _job(run: str, **keys: Any) -> str:
    return json.dumps({"name": "work", "resources": {"gpus": 0}, "run": run, **keys})


def test_jobs_have_the_rights_of_their_users(headgate: Headgate, member: Caller) -> None:
    uid = pwd.getpwnam(USER).pw_uid
    job = member.call("submit", _job("id -u > {output}; cat /etc/shadow || true"))
    headgate.ends(job)
    assert headgate.result(job) == f"{uid}\n".encode()
    log = headgate.client.log(job, 0, attempt=None, offset=0)["text"]
    assert "Permission denied" in log
    own = headgate.submit(_job("id -u > {output}"))
    headgate.ends(own)
    assert headgate.result(own) == b"0\n"


def test_directory_of_a_job_is_open_to_its_user_or_the_job_fails(
    headgate: Headgate, member: Caller, colleague: Caller
) -> None:
    own, closed = headgate.base / "own", headgate.base / "of-root"
    for place, user in ((own, USER), (closed, "root")):
        place.mkdir(mode=0o700)
        os.chown(place, pwd.getpwnam(user).pw_uid, -1)
    run = "echo model > model.pt"
    theirs, job = (
        member.call("submit", _job(run, working_dir={"shared": str(place)}))
        for place in (closed, own)
    )
    headgate.ends(job)
    model = own / "model.pt"
    assert (model.read_text(), model.stat().st_uid) == ("model\n", pwd.getpwnam(USER).pw_uid)
    message = headgate.ends(theirs, "failed")["message"]
    assert f"it cannot run in {closed} on n" in message
    assert "Permission denied" in message
    assert list(closed.iterdir()) == []
    assert colleague.call("job", job)["working_dir"] is None, "names are not for other users"
    marker = (".headgate-marker-" + "0" * 32, "0" * 64)
    answer = member.call("shared_directory", str(closed), *marker)
    assert answer["nodes"] == dict.fromkeys(("n0", "n1"), "Permission denied")


def test_users_see_all_jobs_and_end_their_own(headgate: Headgate, member: Caller) -> None:
    ours = headgate.submit(_job("sleep 1000"))
    theirs = member.call("submit", _job("sleep 1000"))
    headgate.running(theirs, 1)
    assert headgate.client.job(theirs)["user"] == USER
    assert member.call("info")["you"] == USER
    assert {ours, theirs} <= {job["id"] for job in member.call("jobs")["jobs"]}
    assert member.call("cancel", ours) == "forbidden"
    assert member.call("cancel", theirs)["id"] == theirs
    headgate.ends(theirs, "cancelled")
    assert headgate.client.job(ours)["state"] != "cancelled"
    headgate.client.cancel(ours)
    headgate.ends(ours, "cancelled")
    assert Caller(headgate, OTHER).call("jobs") == "unreachable"


@with_filter
def test_ray_programs_of_two_users_run_together_and_see_only_their_grants(
    headgate: Headgate, member: Caller
) -> None:
    folder = headgate.base / "pair"
    folder.mkdir()
    folder.chmod(0o777)
    theirs, ours = pair(folder)
    jobs = [member.call("submit", theirs), headgate.submit(ours)]
    for job in jobs:
        headgate.ends(job)
    first, second = (seen(headgate, job) for job in jobs)
    for uid, found in ((pwd.getpwnam(USER).pw_uid, first), (os.geteuid(), second)):
        assert (found["GPU"], found["CPU"], found["user"]) == (1, 2, uid)  # of 2 and 4
        assert found["here"] in ([["0"]], [["1"]])
    nodes = [headgate.client.tasks(job)[0]["node"] for job in jobs]
    assert (nodes[0], first["here"]) != (nodes[1], second["here"])
    assert first["address"] != second["address"]
    assert not first["reads_token"]
    assert first["status"] != 0
    assert "token" in first["error"].lower()
    assert first["call"] == REFUSED


def test_logs_results_and_messages_are_for_their_owner_unless_public(
    headgate: Headgate, member: Caller, colleague: Caller
) -> None:
    secret = _job("echo the secret | tee {output}; exit $(( {index} ))")
    failing = json.dumps(
        {"tasks": {"count": 1, "run": "echo the secret; exit 1", "retries": 0,
                   "resources": {"gpus": 0}}}
    )  # fmt: skip
    private = member.call("submit", secret)
    public = member.call("submit", secret, public=True)
    broken = member.call("submit", failing)
    headgate.ends(private)
    headgate.ends(public)
    headgate.ends(broken, "failed")
    log = {"attempt": None, "offset": 0}
    assert colleague.call("log", private, 0, **log) == "forbidden"
    assert colleague.call("result", private, None) == "forbidden"
    assert colleague.call("log", public, 0, **log)["text"] == "the secret\n"
    assert colleague.call("result", public, None) == "the secret\n"
    assert member.call("log", private, 0, **log)["text"] == "the secret\n"
    assert headgate.result(private) == b"the secret\n", "root may read all"
    for call in (("job", broken), ("why", broken), ("jobs",)):
        assert "the secret" not in json.dumps(colleague.call(*call))
        assert "the secret" in json.dumps(member.call(*call))


def test_jobs_read_only_datasets_that_their_users_may_read(
    headgate: Headgate, member: Caller, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.write_bytes(b"root's numbers\n")
    headgate.put("private", data, 1)
    headgate.call("data", "put", str(data), "--name", "open", "--public")
    assert headgate.client.dataset("open")["public"]
    reads = "data: {{d: {{from: {}}}}}\ntasks: {{for_each: d, run: 'cat {{shard}} > {{output}}'}}"
    assert member.call("submit", reads.format("private")) == "forbidden"
    assert member.call("submit", reads.format("private"), dry_run=True) == "forbidden"
    job = member.call("submit", reads.format("open"))
    headgate.ends(job)
    assert headgate.result(job) == data.read_bytes()


def test_plain_files_are_found_with_the_rights_of_the_submitting_user(
    headgate: Headgate, member: Caller
) -> None:
    """Otherwise any user could list files and sizes in any directory."""
    place = headgate.base / "closed"
    place.mkdir(mode=0o700)
    (place / "there").write_text("x")
    text = "data: {{d: {{files: [{}]}}}}\ntasks: {{for_each: d, run: 'cat {{shard}}'}}"
    assert member.call("submit", text.format(place / "there")) == "bad_spec"
    headgate.submit(text.format(place / "there"), dry_run=True)
    with pytest.raises(SpecError, match="there is no file"):
        headgate.submit(text.format(place / "absent"), dry_run=True)


def test_nothing_that_headgate_keeps_is_open_to_the_group(headgate: Headgate) -> None:
    headgate.ends(headgate.submit(_job("echo result > {output}")))
    opened = []
    for place, directories, files in os.walk(headgate.state):
        for name in tuple(directories):
            mode = (Path(place) / name).stat().st_mode
            assert not mode & (stat.S_IRWXG | stat.S_IRWXO) & ~(stat.S_IXGRP | stat.S_IXOTH), name
            if not mode & (stat.S_IXGRP | stat.S_IXOTH):
                directories.remove(name)  # no other user gets further
        for name in files:
            file = Path(place) / name
            if file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                opened.append(file.name)
    assert opened == ["headgate.sock"]
    for file in ("ray-token", "shard-token", "journal.db", "archive.db", "config.json", "ray.json"):
        assert stat.S_IMODE((headgate.state / file).stat().st_mode) == 0o600


def test_no_token_is_in_a_command_line_or_an_environment_of_a_run(
    headgate: Headgate, member: Caller, gates: Gates
) -> None:
    tokens = [(headgate.state / f"{kind}-token").read_text() for kind in ("ray", "shard")]
    uid = pwd.getpwnam(USER).pw_uid
    job = member.call("submit", _job("sleep 1000"))
    headgate.running(job, 1)
    headgate.until(
        lambda: any(p.info["uids"].real == uid for p in psutil.process_iter(["uids"])),
        "its process is the user's",
    )
    runs = 0
    for process in psutil.process_iter():
        try:
            line = " ".join(process.cmdline())
            assert not any(token in line for token in tokens)
            if process.uids().real == uid:
                runs += 1
                settings = process.environ()
                assert not any(token in str(settings) for token in tokens)
                assert not any(name.startswith("RAY_") for name in settings)
        except psutil.NoSuchProcess:  # it has ended, a zombie included
            continue
    assert runs
    member.call("cancel", job)
    headgate.ends(job, "cancelled")


@with_filter
def test_runs_of_users_cannot_call_the_nodes(headgate: Headgate, member: Caller) -> None:
    """One such call would end the head."""
    script = headgate.base / "call.py"
    shutil.copy(grpc_call.__file__, script)
    script.chmod(0o644)
    ports = [p for b in headgate.cluster.ports.values() for p in (b.gcs, b.gcs + 2, b.last)]
    targets = [headgate.cluster.address, *(f"127.0.0.1:{port}" for port in ports)]
    method = "/ray.rpc.syncer.RaySyncer/StartSync"
    call = f"python -I {script} {method} {' '.join(targets)} > {{output}}"
    job = member.call("submit", _job(call))
    headgate.ends(job)
    assert set(json.loads(headgate.result(job))) == {REFUSED}
    assert alive(headgate.cluster) == tuple(headgate.cluster.seats)


def test_ray_rejects_clients_without_its_token(headgate: Headgate) -> None:
    code = (
        f"import ray; ray.init(address='{headgate.cluster.address}', log_to_driver=False);"
        "print('IN', ray.cluster_resources())"
    )
    job = headgate.submit(_job(f'timeout 60 python -c "{code}" || true'))  # root reaches it
    headgate.ends(job)
    log = headgate.client.log(job, 0, attempt=None, offset=0)["text"]
    assert "token" in log.lower()
    assert "IN" not in log.split()


def as_user(python: str, user: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program as another account of the group."""
    account = pwd.getpwnam(user)
    return subprocess.run(
        [python, "-m", "headgate.cli.main", *arguments],
        user=account.pw_uid,
        group=account.pw_gid,
        extra_groups=[grp.getgrnam(USER).gr_gid],
        cwd="/",
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_two_users_run_jobs_with_one_line_each_and_leave_those_of_the_other_alone(
    headgate: Headgate,
) -> None:
    python, place = python_for_all(), ("--state-dir", str(headgate.state))
    jobs = []
    for user in (USER, "root"):
        command = ("--array", "0-1", "--name", user, "--wait", "--", "id", "-un")
        done = as_user(python, user, "submit", *place, *command)
        assert done.returncode == 0, done.stderr
        job, state = done.stdout.split()
        assert (job.rpartition("-")[0], state) == (user, "COMPLETED")
        logs = as_user(python, user, "logs", *place, job, "--task", "1")
        assert logs.stdout == f"{user}\n", logs.stderr
        jobs.append(job)
    assert as_user(python, OTHER, "logs", *place, jobs[0], "--task", "0").returncode == 2
    listed = as_user(python, OTHER, "jobs", *place)
    assert {USER, "root"} <= {line.split()[1] for line in listed.stdout.splitlines()}


def test_killing_the_node_ends_what_its_users_run(headgate: Headgate, member: Caller) -> None:
    job = member.call("submit", _job("setsid env -i sleep 7654; true"))
    (task,) = headgate.running(job, 1)

    def sleeping() -> list[psutil.Process]:
        found = psutil.process_iter(["cmdline"])
        return [process for process in found if process.info["cmdline"] == ["sleep", "7654"]]

    headgate.until(sleeping, "it runs")
    headgate.kill_node(task["node"])
    headgate.until(lambda: not sleeping(), "it has ended with its node")
    member.call("cancel", job)
    headgate.ends(job, "cancelled")
