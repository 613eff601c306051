"""Unpacking of packages: what a hostile archive cannot do, with and without the stdlib's filter."""

from __future__ import annotations

import copy
import errno
import io
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases

from headgate.api.packing import package_of
from headgate.live.run import unpack as module
from headgate.live.run.unpack import MOST_MEMBERS, UnpackError, stays_inside, unpack

SCRIPT = module.__file__
# a Python before 3.11.4, such as Debian's: no filters, and no argument for one
OLD_PYTHON = f"""
import runpy, sys, tarfile
for name in ("data_filter", "tar_filter", "fully_trusted_filter"):
    if hasattr(tarfile, name):
        delattr(tarfile, name)
sys.argv = ["unpack.py", *sys.argv[1:]]
runpy.run_path({SCRIPT!r}, run_name="__main__")
"""


def member(name: str, kind: bytes = tarfile.REGTYPE, **fields: Any) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.mode = kind, 0o644
    for key, value in fields.items():
        setattr(found, key, value)
    return found


def archive_of(*members: tarfile.TarInfo | tuple[tarfile.TarInfo, bytes]) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        for each in members:
            info, content = each if isinstance(each, tuple) else (each, b"")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return held.getvalue()


class Place:
    """A directory to unpack into, beside a file that nothing may touch."""

    def __init__(self, root: Path, script: list[str]) -> None:
        self.root, self.files, self._script = root, root / "files", script
        self.files.mkdir()
        self.secret = root / "secret"
        self.secret.write_text("mine")

    def unpack(self, archive: bytes) -> str:
        """Unpack an archive as a node does; return the message, or '' if that succeeded."""
        package = self.root / "package.tar"
        package.write_bytes(archive)
        command = [sys.executable, "-I", "-S", *self._script, str(package), str(self.files)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert "Traceback" not in done.stderr
        assert bool(done.returncode) == bool(done.stderr), done.stderr
        assert self.secret.read_text() == "mine"
        assert sorted(path.name for path in self.root.iterdir()) == [
            "files",
            "package.tar",
            "secret",
        ]
        return done.stderr


@pytest.fixture(params=[[SCRIPT], ["-c", OLD_PYTHON]], ids=["this Python", "without filters"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    (tmp_path / "root").mkdir()
    return Place(tmp_path / "root", request.param)


SYM, HARD, DIR = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE
OUTSIDE: dict[str, list[Any]] = {
    "absolute path": [(member("/{root}/planted"), b"x")],
    "absolute directory": [member("/{root}/planted", DIR)],
    "path up": [(member("a/../../planted"), b"x")],
    "path through a link inside": [
        member("d", DIR),
        member("near", SYM, linkname="d"),
        (member("near/bad"), b"x"),
    ],
    "directory in place of a link": [
        member("near", SYM, linkname="x"),
        member("near/bad", DIR),
    ],
    "absolute link": [member("bad", SYM, linkname="{root}/secret")],
    "link up": [member("d/bad", SYM, linkname="../../secret")],
    "link up behind a link": [
        member("a/b/c", DIR),
        member("short", SYM, linkname="a/b/c"),
        member("a/b/bad", SYM, linkname="../../short/../../../../secret"),
    ],
    "hard link to an absolute path": [member("bad", HARD, linkname="{root}/secret")],
    "hard link up": [member("bad", HARD, linkname="../secret")],
    "hard link to a missing file": [member("bad", HARD, linkname="none")],
    "hard link to nothing": [member("bad", HARD, linkname="")],
    "hard link through a link": [
        member("near", SYM, linkname="d"),
        member("bad", HARD, linkname="near/secret"),
    ],
    "hard link to a link, which leads higher there": [
        member("d/e/up", SYM, linkname="../.."),
        member("bad", HARD, linkname="d/e/up"),
    ],
    "device": [member("bad", tarfile.CHRTYPE, devmajor=1, devminor=3)],
    "block device": [member("bad", tarfile.BLKTYPE, devmajor=7)],
    "named pipe": [member("bad", tarfile.FIFOTYPE)],
    "unknown kind": [member("bad", b"Z")],
    "file in place of a directory": [member("bad/d", DIR), (member("bad"), b"x")],
    "file without a name": [(member("./"), b"x")],
}


@pytest.mark.parametrize("case", OUTSIDE)
def test_member_that_could_do_harm_fails_with_its_name(place: Place, case: str) -> None:
    members = []
    for each in OUTSIDE[case]:
        info, content = each if isinstance(each, tuple) else (each, b"")
        info = copy.copy(info)
        for key in ("name", "linkname"):
            setattr(info, key, getattr(info, key).replace("{root}", str(place.root)))
        members.append((info, content))
    message = place.unpack(archive_of(*members))
    assert message.startswith("headgate: the package cannot be unpacked: member ")
    assert repr(members[-1][0].name) in message
    assert "send a directory" in message
    assert not list(place.files.rglob("planted"))


def test_modes_and_owners_are_those_of_the_caller(place: Place) -> None:
    owner: dict[str, Any] = {"uid": 12345, "gid": 12345, "uname": "daemon", "gname": "daemon"}
    archive = archive_of(
        (member("tool", mode=0o6755, mtime=1_000_000_000, **owner), b"x"),
        (member("open", mode=0o666, **owner), b"x"),
        (member("key", mode=0o600, mtime=1e30), b"x"),
        (member("closed", mode=0), b"x"),
        member("shared", DIR, mode=0o7777, **owner),
        member("shut", DIR, mode=0),
        (member("shut/in", pax_headers={"mtime": "nan"}), b"x"),
    )
    assert place.unpack(archive) == ""
    found = {path.name: path.lstat() for path in place.files.rglob("*")}
    modes = {name: oct(stat.S_IMODE(seen.st_mode)) for name, seen in found.items()}
    assert modes == {
        "tool": "0o755", "open": "0o644", "key": "0o600", "closed": "0o600",
        "shared": "0o755", "shut": "0o700", "in": "0o644",
    }  # fmt: skip
    assert {(seen.st_uid, seen.st_gid) for seen in found.values()} == {(os.geteuid(), os.getegid())}
    assert found["tool"].st_mtime == 1_000_000_000


def test_files_and_links_inside_are_unpacked_as_they_were(place: Place, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "pkg" / "data").mkdir(parents=True)
    (project / "pkg" / "mod.py").write_text("x = 1\n")
    (project / "pkg" / "run").write_text("#!/bin/sh\n")
    (project / "pkg" / "run").chmod(0o755)
    (project / "näme ").write_bytes(bytes(3 << 20))
    links = {
        "pkg/data/up": "../mod.py",
        "near": "pkg",
        "round": "pkg/data/../mod.py",
        "by-name": "../project/pkg/mod.py",
        "absolute": str(project / "pkg" / "run"),
        "later": "made-by-setup",
    }
    for name, target in links.items():
        (project / name).symlink_to(target)
    assert place.unpack(b"".join(package_of(project).pieces())) == ""
    for name in links.keys() - {"later"}:
        real = Path(os.path.realpath(project / name)).relative_to(project)
        assert Path(os.path.realpath(place.files / name)) == place.files / real
    for path in ("pkg/mod.py", "pkg/run", "näme "):
        assert (place.files / path).read_bytes() == (project / path).read_bytes()
    assert (place.files / "later").readlink() == Path("made-by-setup")
    assert os.access(place.files / "pkg" / "run", os.X_OK)


def test_archive_of_tar_itself_is_unpacked(place: Place, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "a").mkdir(parents=True)
    (project / "a" / "file").write_text("content")
    (project / "a" / "same").hardlink_to(project / "a" / "file")
    package = tmp_path / "made.tar"
    subprocess.run(["tar", "-C", project, "-cf", package, "."], check=True)
    assert place.unpack(package.read_bytes()) == ""
    assert (place.files / "a" / "same").read_text() == "content"
    assert (place.files / "a" / "same").samefile(place.files / "a" / "file")


def test_later_member_replaces_the_file_or_link_of_an_earlier_one(place: Place) -> None:
    archive = archive_of(
        (member("kept"), b"kept"),
        member("x", SYM, linkname="kept"),
        (member("x"), b"new"),
        (member("y"), b"old"),
        member("z", HARD, linkname="y"),
        (member("y"), b"newer"),
    )
    assert place.unpack(archive) == ""
    found = {path.name: path.read_bytes() for path in place.files.iterdir()}
    assert found == {"kept": b"kept", "x": b"new", "y": b"newer", "z": b"old"}


@pytest.mark.parametrize("content", [b"", b"no archive" * 100, b"PK\x03\x04" + bytes(2000)])
def test_what_is_no_archive_is_reported(place: Place, content: bytes) -> None:
    assert "is not a whole tar archive" in place.unpack(content)


def test_compressed_archive_is_rejected(place: Place) -> None:
    """Some KiB of it could fill a disk."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as archive:
        info = member("zeros")
        info.size = 1 << 20
        archive.addfile(info, io.BytesIO(bytes(1 << 20)))
    assert "without compression" in place.unpack(held.getvalue())


def test_sparse_file_is_rejected(place: Place, tmp_path: Path) -> None:
    """Its holes would be written: a small archive could fill a disk."""
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    for form in ("gnu", "posix"):
        package = tmp_path / f"{form}.tar"
        command = ["tar", f"--format={form}", "-S", "-C", str(tmp_path), "-cf", str(package)]
        subprocess.run([*command, "sparse"], check=True)
        assert "member 'sparse'" in place.unpack(package.read_bytes())


def test_truncated_archive_is_reported(place: Place) -> None:
    archive = archive_of((member("long"), bytes(100_000)))
    assert "is not a whole tar archive" in place.unpack(archive[:60_000])


def test_number_of_members_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_MEMBERS", 3)
    (tmp_path / "files").mkdir()
    package = tmp_path / "package.tar"
    package.write_bytes(archive_of(*(member(f"{n}") for n in range(4))))
    with pytest.raises(UnpackError, match="more than 3 members"):
        unpack(package, tmp_path / "files")
    assert MOST_MEMBERS == 100_000


def test_name_in_a_message_is_short_and_without_control_characters(place: Place) -> None:
    message = place.unpack(archive_of(member("\x1b[2J" + 500 * "x" + "/../..", DIR)))
    assert r"\x1b[2J" in message
    assert "\x1b" not in message
    assert len(message) < 1000


@pytest.mark.parametrize(
    ("depth", "target", "inside"),
    [
        (0, "x", True), (0, "./x//y", True), (0, ".", True), (0, "..", False), (1, "..", True),
        (2, "../../x", True), (2, "../../../x", False), (3, "x/..", False), (3, "../x/../y", False),
        (1, "./../x", True), (9, "/x", False), (0, "...", True),
    ],
)  # fmt: skip
def test_links_that_stay_inside(depth: int, target: str, inside: bool) -> None:
    assert stays_inside(depth, target) is inside


PATHS = st.lists(st.sampled_from(["a", "b", "c", "..", ".", ""]), min_size=1, max_size=5)
KINDS = st.sampled_from([tarfile.REGTYPE, tarfile.REGTYPE, DIR, SYM, SYM, HARD, tarfile.FIFOTYPE])


def leads_inside(path: Path, top: Path) -> bool:
    try:
        real = os.path.realpath(path, strict=True)
    except OSError as error:
        if error.errno == errno.ELOOP:  # of what else, `realpath` makes a path that is none
            return True
        real = os.path.realpath(path)
    return Path(real).is_relative_to(os.path.realpath(top))


@settings(max_examples=cases(200), deadline=None)
@given(
    entries=st.lists(
        st.tuples(PATHS.map("/".join), KINDS, PATHS.map("/".join), st.integers(0, 0o7777)),
        max_size=12,
    )
)
def test_no_archive_leads_outside(entries: list[tuple[str, bytes, str, int]]) -> None:
    """Members that are invalid are left out, so that as much as possible is unpacked."""
    with tempfile.TemporaryDirectory() as root:
        outside, files, package = (Path(root, name) for name in ("a", "files", "package.tar"))
        outside.mkdir()
        (outside / "b").write_text("mine")
        valid: list[Any] = []
        for name, kind, target, mode in entries:
            found = member(name, kind, mode=mode, linkname=target)
            package.write_bytes(archive_of(*valid, (found, b"x" * (kind == tarfile.REGTYPE))))
            shutil.rmtree(files, ignore_errors=True)
            try:
                unpack(package, files)
            except UnpackError:
                continue
            valid.append((found, b"x" * (kind == tarfile.REGTYPE)))
        assert {path.name for path in Path(root).iterdir()} <= {"a", "files", "package.tar"}
        assert [path.name for path in outside.iterdir()] == ["b"]
        assert (outside / "b").read_text() == "mine"
        assert (outside / "b").stat().st_nlink == 1
        for path in files.rglob("*"):
            seen = path.lstat()
            assert leads_inside(path, files)
            assert stat.S_ISREG(seen.st_mode) or stat.S_ISDIR(seen.st_mode) or path.is_symlink()
            assert path.is_symlink() or not seen.st_mode & 0o7022
