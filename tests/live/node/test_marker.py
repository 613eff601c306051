"""Whether a node has a directory: its marker, looked at with the rights of its user."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live.conftest import ME

from headgate.base.errors import SpecError
from headgate.live.controller.directories import representatives, verdict
from headgate.live.node import marker as module
from headgate.live.node.marker import MARKER_PREFIX, Marker, Seen, look, mounts_here

NAME, CONTENT = MARKER_PREFIX + "0a" * 16, "1b" * 32


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hg-marker-", dir="/tmp") as found:
        yield Path(found)


def seen(place: Path, user: str = ME) -> Seen:
    return look(Marker(path=str(place), name=NAME, content=CONTENT), user)


def test_directory_with_the_marker_is_seen_with_its_number(place: Path) -> None:
    (place / NAME).write_text(CONTENT)
    assert seen(place) == Seen(inode=place.stat().st_ino)


def test_number_of_a_directory_that_means_nothing_elsewhere_is_not_returned(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / NAME).write_text(CONTENT)
    monkeypatch.setattr(module, "_LOOK", module._LOOK.replace("stat -f -c %t .", "echo 65735546"))
    assert seen(place) == Seen(inode=0)


def test_directory_without_its_marker_is_another_one(place: Path) -> None:
    other = Seen(problem="it is another directory there")
    assert seen(place) == other
    (place / NAME).write_text("2c" * 32)
    assert seen(place) == other
    (place / NAME).unlink()
    (place / "elsewhere").write_text(CONTENT)
    (place / NAME).symlink_to("elsewhere")
    assert seen(place) == other
    (place / NAME).unlink()
    os.mkfifo(place / NAME)
    assert seen(place) == other
    assert seen(place / "missing") == Seen(problem="No such file or directory")
    assert seen(place / "elsewhere") == Seen(problem="Not a directory")


def test_file_system_that_does_not_answer_has_no_directory(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.2)
    monkeypatch.setattr(module, "_LOOK", "sleep 600")
    assert seen(place) == Seen(problem="its file system did not answer within 0.2 s")


@pytest.mark.parametrize(
    "change",
    [
        {"path": "proj"},
        {"path": "/proj\0"},
        {"path": "/" + "x" * 5000},
        {"name": "../../etc/shadow"},
        {"name": MARKER_PREFIX},
        {"name": NAME + "\n"},
        {"content": ""},
        {"content": "x"},
    ],
)
def test_what_is_no_marker_is_looked_for_nowhere(change: dict[str, str]) -> None:
    with pytest.raises(SpecError):
        Marker(**{"path": "/proj", "name": NAME, "content": CONTENT, **change})


def test_directory_is_shared_where_every_node_that_is_up_has_it() -> None:
    has, lacks = Seen(inode=7), Seen(problem="No such file or directory")
    assert verdict({"n0": has, "n1": has}) == {"shared": True, "inode": 7, "nodes": {}}
    assert verdict({"n0": has, "n1": Seen(inode=8)}) == {"shared": True, "inode": 0, "nodes": {}}
    only_one = {"shared": False, "inode": 0, "nodes": {"n1": lacks.problem}}
    assert verdict({"n0": has, "n1": lacks}) == only_one
    assert verdict({}) == {"shared": False, "inode": 0, "nodes": {}}


def test_one_of_the_nodes_that_see_the_same_files_is_asked_for_all() -> None:
    names = ["n0", "n1", "n2", "n3", "n4"]
    mounts = {"n0": "here", "n1": "there", "n2": "here", "n3": ""}
    asked = {"n0": "n0", "n1": "n1", "n2": "n0", "n3": "n3", "n4": "n4"}
    assert representatives(names, mounts) == asked
    assert mounts_here() == mounts_here() != ""
