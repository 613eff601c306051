"""Checks of `up --group`, and permissions of the state directory."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live.accounts import OTHER, USER, python_for_all, readable_python, root_only

from headgate.base.errors import SpecError
from headgate.cli.cluster import cluster
from headgate.cli.common.settings import settle
from headgate.live.base import account

__all__ = ["readable_python"]
UP = "from headgate.cli.main import main; main()"


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that any user can reach."""
    made = Path(tempfile.mkdtemp(prefix="hg-users-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def _problem(state: Path, group: str | None = USER) -> str:
    with pytest.raises(SpecError) as caught:
        cluster.start_cluster(state, group=group)
    assert all(problem.hint for problem in caught.value.problems)
    return str(caught.value)


@pytest.mark.usefixtures("readable_python")
class TestRoot:
    """Checks of an `up` of root."""

    pytestmark = root_only

    def test_group_is_refused_whose_members_cannot_run_the_interpreter(
        self, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (place / "closed").mkdir(mode=0o700)
        (place / "closed" / "python").symlink_to(account.INTERPRETER)
        monkeypatch.setattr(account, "INTERPRETER", str(place / "closed" / "python"))
        assert "Permission denied" in _problem(place / "state")
        assert not (place / "state").exists()

    def test_group_is_refused_that_cannot_reach_the_state_directory(self, place: Path) -> None:
        (place / "closed").mkdir(mode=0o700)
        assert f"{place / 'closed'} is closed to them" in _problem(place / "closed" / "state")
        assert not (place / "closed" / "state").exists()

    def test_group_needs_shared_account_where_nodes_do_not_run_as_root(self, place: Path) -> None:
        os.chown(place, pwd.getpwnam(OTHER).pw_uid, -1)
        command = [
            python_for_all(),
            "-c",
            UP,
            "up",
            f"--group={USER}",
            f"--state-dir={place / 'state'}",
        ]
        done = subprocess.run(
            command,
            **account.account_for(OTHER).options(),
            capture_output=True,
            check=False,
            text=True,
        )
        assert done.returncode == 2, done.stderr
        assert f"would run as {OTHER}" in done.stderr
        assert "--shared-account" in done.stderr
        assert not (place / "state").exists()

    def test_settings_of_another_user_are_not_followed(self, place: Path) -> None:
        planted = place / ".headgate.yaml"
        planted.write_text("state: /tmp/trap\n")
        os.chown(planted, pwd.getpwnam(OTHER).pw_uid, -1)
        with pytest.raises(SpecError, match="belongs to another user"):
            settle(None, None, environment={"HOME": str(place / "home")}, directory=place)
        given = settle(place, None, environment={"HEADGATE_OUTPUT": "table"}, directory=place)
        assert given.state == place

    def test_state_directory_of_another_user_is_refused(self, place: Path) -> None:
        os.chown(place, pwd.getpwnam(OTHER).pw_uid, -1)
        assert "other users may write there" in _problem(place, group=None)


def test_state_directory_where_others_may_write_is_refused(place: Path) -> None:
    place.chmod(0o1777)
    assert "other users may write there" in _problem(place, group=None)
    assert stat.S_IMODE(place.stat().st_mode) == 0o1777


def test_state_directory_is_closed_to_others_even_if_it_was_open(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    cluster._set_rights(tmp_path, None)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700
