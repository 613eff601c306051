"""A user's storm of forks, and a program that needs more memory than it asked for, on Ray nodes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import psutil
import pytest
from tests.live.accounts import OTHER, USER, python_for_all, root_only
from tests.live.run.test_run_limits import EATS, MIB, STORM, needs_groups, write
from tests.live.shared import Clusters
from tests.live.system import Headgate
from tests.live.test_system_users import Caller

from headgate.live.base import account

pytestmark = [pytest.mark.live, *root_only, needs_groups]


@pytest.fixture(scope="module")
def headgate(clusters: Clusters) -> Iterator[Headgate]:
    up, python = (f"--group={USER}", "--max-processes=200"), python_for_all()
    with clusters.lend(__name__, nodes=2, gpus=2, up=up, python=python) as headgate:
        yield headgate


@pytest.fixture
def member(headgate: Headgate) -> Caller:
    return Caller(headgate, USER, USER)


def _job(run: str, **resources: object) -> str:
    return json.dumps({"name": "work", "resources": {"gpus": 0, **resources}, "run": run})


def test_storm_of_forks_hinders_no_other_user_and_ends_with_its_job(
    headgate: Headgate, member: Caller
) -> None:
    place = headgate.base / "storm"
    place.mkdir(mode=0o777)
    place.chmod(0o777)
    write(place / "storm.py", STORM)
    storm = member.call("submit", _job(f"python3 {place}/storm.py {place}/begun"))
    headgate.until((place / "begun").exists, "the storm has begun")
    for _ in range(20):
        other = account.account_for(OTHER).options()
        assert subprocess.run(["/bin/true"], check=False, **other).returncode == 0
    ours = headgate.submit(_job("id -un > {output}"))
    headgate.ends(ours)
    assert headgate.client.job(storm)["state"] == "active"
    assert member.call("cancel", storm, now=True)["was"] == "active"
    headgate.ends(storm, "cancelled")
    found = psutil.process_iter(["cmdline"])
    assert not [p for p in found if str(place) in " ".join(p.info["cmdline"] or ())]
    assert headgate.up_nodes() == {"n0", "n1"}


def test_program_killed_for_its_memory_fails_with_what_it_asked_and_used(
    headgate: Headgate, member: Caller
) -> None:
    job = member.call("submit", _job(f"python3 -c '{EATS}' {1024 * MIB}", memory="256MiB"))
    headgate.ends(job, "failed")
    words = "OutOfMemory(asked 256 MiB, used 2"
    assert words in headgate.client.job(job)["message"]
    assert words in headgate.run("get", job).stdout
