"""Directories that the nodes share are looked at, and run in, with the rights of the job's user."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest
from tests.live.accounts import OTHER, USER, readable_python, root_only
from tests.live.actors.test_isolation import OTHER_UID, UID, Node, failed, finished, node
from tests.live.node.test_marker import CONTENT, NAME, seen

from headgate.live.node.marker import Seen

pytestmark = root_only
__all__ = ["node", "readable_python"]


def test_directory_is_seen_with_the_rights_of_its_user(node: Node) -> None:
    place, own = node.base / "proj", pwd.getpwnam(USER)
    place.mkdir(mode=0o700)
    (place / NAME).write_text(CONTENT)
    (place / NAME).chmod(0o600)
    os.chown(place / NAME, own.pw_uid, own.pw_gid)
    assert seen(place, USER) == Seen(problem="Permission denied"), "it is closed"
    place.chmod(0o755)
    assert seen(place, USER) == Seen(problem="you cannot write there")
    os.chown(place, own.pw_uid, own.pw_gid)
    assert seen(place, USER) == Seen(inode=place.stat().st_ino)
    place.chmod(0o777)
    assert seen(place, OTHER) == Seen(problem="Permission denied"), "it is not its marker"
    place.chmod(0o700)
    assert seen(place, OTHER) == Seen(problem="Permission denied")
    assert seen(place, "no-such-user") == Seen(problem="there is no user 'no-such-user'")


def test_run_in_a_shared_directory_has_its_users_rights_there_and_what_it_writes_is_theirs(
    node: Node,
) -> None:
    place = node.base / "proj"
    place.mkdir(mode=0o700)
    os.chown(place, UID, UID)
    finished(node.run("mkdir sub; echo model > sub/model.pt; pwd > {output}", directory=place))
    assert node.result() == f"{place}\n"
    found = (place / "sub" / "model.pt").stat()
    assert (found.st_uid, found.st_gid) == (UID, pwd.getpwnam(USER).pw_gid)


@pytest.mark.parametrize("setup", [(), ("cp secret /tmp/stolen",)])
def test_directory_of_another_user_is_neither_entered_nor_read(
    node: Node, setup: tuple[str, ...]
) -> None:
    theirs = node.base / "theirs"
    theirs.mkdir(mode=0o700)
    (theirs / "secret").write_text("of another user")
    os.chown(theirs, OTHER_UID, OTHER_UID)
    message = failed(node.run("cat secret; touch planted", directory=theirs, setup=setup))
    assert "Permission denied" in message
    assert "of another user" not in node.log()
    assert [file.name for file in theirs.iterdir()] == ["secret"]
    assert not Path("/tmp/stolen").exists()
