"""Packages of directories: the same content has the same id, and what cannot be sent is named."""

from __future__ import annotations

import hashlib
import io
import os
import socket
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.api import packing
from headgate.api.packing import IGNORE_FILE, MOST_BYTES, package_of
from headgate.base.errors import SpecError
from headgate.live.run import unpack


def write(top: Path, files: dict[str, bytes]) -> Path:
    for path, content in files.items():
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_bytes(content)
    return top


def names(top: Path) -> list[str]:
    return [entry.path for entry in package_of(top).entries]


def unpacked(top: Path) -> dict[str, tarfile.TarInfo]:
    archive = b"".join(package_of(top).pieces())
    with tarfile.open(fileobj=io.BytesIO(archive)) as found:
        return {member.name: member for member in found.getmembers()}


def error_of(top: Path) -> SpecError:
    with pytest.raises(SpecError) as caught:
        package_of(top)
    return caught.value


NAMES = st.text(st.sampled_from("abé.-_ 漢"), min_size=1, max_size=8).filter(
    lambda name: name.strip(".") != ""
)
TREES = st.dictionaries(
    st.lists(NAMES, min_size=1, max_size=3).map("/".join),
    st.binary(max_size=1500),
    max_size=6,
).filter(lambda tree: not any(a != b and b.startswith(f"{a}/") for a in tree for b in tree))


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(tree=TREES, data=st.data())
def test_package_has_all_files_and_depends_on_their_content_alone(
    tmp_path_factory: Any, tree: dict[str, bytes], data: Any
) -> None:
    first = write(tmp_path_factory.mktemp("first"), tree)
    order = data.draw(st.permutations(sorted(tree)))
    second = write(tmp_path_factory.mktemp("second"), {path: tree[path] for path in order})
    for path in tree:
        os.utime(second / path, (1, 1))
    archive = b"".join(package_of(first).pieces())
    assert package_of(second).digest() == hashlib.sha256(archive).hexdigest()
    with tarfile.open(fileobj=io.BytesIO(archive)) as found:
        files = {m.name: found.extractfile(m) for m in found.getmembers() if m.isfile()}
        assert {name: file.read() for name, file in files.items() if file} == tree


def test_content_names_and_permissions_change_the_id(tmp_path: Path) -> None:
    write(tmp_path, {"a": b"x"})
    seen = [package_of(tmp_path).digest()]
    (tmp_path / "a").chmod(0o755)
    seen.append(package_of(tmp_path).digest())
    (tmp_path / "a").write_bytes(b"y")
    seen.append(package_of(tmp_path).digest())
    (tmp_path / "a").rename(tmp_path / "b")
    seen.append(package_of(tmp_path).digest())
    assert len(set(seen)) == 4


def test_what_is_made_by_tools_and_what_is_ignored_is_not_sent(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            IGNORE_FILE: b"data/\n*.log\n!kept.log\n",
            "train.py": b"",
            "pkg/mod.py": b"",
            "pkg/__pycache__/mod.pyc": b"",
            ".git/HEAD": b"",
            ".venv/bin/python": b"",
            "other-env/pyvenv.cfg": b"",
            "data/big": b"",
            "a.log": b"",
            "kept.log": b"",
        },
    )
    assert names(tmp_path) == [IGNORE_FILE, "kept.log", "pkg", "pkg/mod.py", "train.py"]


def test_large_directory_is_rejected_unread_with_its_largest_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in (("data/train.bin", 8 << 30), ("data/test.bin", 2 << 30), ("code.py", 10)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
    monkeypatch.setattr(os, "open", None)  # nothing is read
    error = error_of(tmp_path)
    assert error.code == "too_large"
    (problem,) = error.problems
    assert (
        problem.problem
        == "has 10.0 GiB, at most 500 MiB are sent; largest: data (10 GiB), code.py (10 B)"
    )
    assert problem.hint.endswith(f"in {tmp_path / IGNORE_FILE}, as in .gitignore")


def test_directory_of_too_many_files_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "MOST_FILES", 3)
    write(tmp_path, {f"files/{number}": b"" for number in range(4)})
    assert error_of(tmp_path).problems[0].problem.startswith("has more than 3 files")


def test_all_that_cannot_be_sent_is_named(tmp_path: Path) -> None:
    top = write(tmp_path / "top", {"train.py": b""})
    with socket.socket(socket.AF_UNIX) as listener:
        before = Path.cwd()
        os.chdir(top)  # the path of a socket is short
        listener.bind("agent.sock")
        os.chdir(before)
    os.mkfifo(top / "pipe")
    (top / "one").symlink_to("two")
    (top / "two").symlink_to("one")
    (top / "home").symlink_to(tmp_path)
    (top / "missing").symlink_to("/no/such/file")
    found = {Path(p.path).name: p.problem for p in error_of(top).problems}
    assert found == {
        "agent.sock": "is a socket, which cannot be sent",
        "pipe": "is a named pipe, which cannot be sent",
        "one": "is a link in a loop of links",
        "two": "is a link in a loop of links",
        "home": f"is a link that leads outside, to {tmp_path}",
        "missing": "is a link that leads outside, to /no/such/file",
    }
    assert all(IGNORE_FILE in problem.hint for problem in error_of(top).problems)
    write(top, {IGNORE_FILE: b"agent.sock\npipe\none\ntwo\nhome\nmissing\n"})
    assert names(top) == [IGNORE_FILE, "train.py"]


def test_links_inside_are_kept_and_lead_to_the_same_file_elsewhere(tmp_path: Path) -> None:
    write(tmp_path, {"v2/model": b"x"})
    (tmp_path / "latest").symlink_to("v2")
    (tmp_path / "v2" / "absolute").symlink_to(tmp_path / "v2" / "model")
    (tmp_path / "v2" / "up").symlink_to("..")
    (tmp_path / ".#lock").symlink_to("user@host")  # of an editor: leads nowhere
    targets = {m.name: m.linkname for m in unpacked(tmp_path).values() if m.issym()}
    assert targets == {
        "latest": "v2", "v2/absolute": "model", "v2/up": "..", ".#lock": "user@host",
    }  # fmt: skip


def test_unpacked_package_is_the_same_package(tmp_path: Path) -> None:
    top = write(
        tmp_path / "top", {"n" * 200: b"long", "漢é": b"u", "v2/model": b"x", "run.sh": b"#!"}
    )
    (top / "v2" / "empty").mkdir()
    (top / "v2" / "up").symlink_to("..")
    (top / "latest").symlink_to("v2/model")
    (top / ".#lock").symlink_to("user@host")
    (top / os.fsdecode(b"bad\xff")).write_bytes(b"no UTF-8")
    (top / "run.sh").chmod(0o755)
    archive, out = tmp_path / "package.tar", tmp_path / "out"
    archive.write_bytes(b"".join(package_of(top).pieces()))
    command = [sys.executable, "-I", "-S", unpack.__file__, str(archive), str(out)]
    subprocess.run(command, check=True, umask=0o022)
    assert package_of(out).digest() == package_of(top).digest()


def test_unreadable_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"secret": b"", "train.py": b""})
    if os.geteuid() == 0:  # may read all: ask as any other user would
        allowed = os.access
        monkeypatch.setattr(
            os, "access", lambda path, *a, **o: allowed(path, *a, **o) and "secret" not in str(path)
        )
    else:
        (tmp_path / "secret").chmod(0)
    (problem,) = error_of(tmp_path).problems
    assert (Path(problem.path).name, problem.problem) == (
        "secret", "cannot be read: Permission denied",
    )  # fmt: skip


@pytest.mark.parametrize("content", [b"longer", b"", None])
def test_file_that_changes_after_the_listing_is_named(
    tmp_path: Path, content: bytes | None
) -> None:
    write(tmp_path, {"log": b"line"})
    package = package_of(tmp_path)
    (tmp_path / "log").unlink()
    if content is not None:
        (tmp_path / "log").write_bytes(content)
    with pytest.raises(SpecError, match="changed while the directory was sent") as caught:
        package.digest()
    assert caught.value.code == "changed"


@pytest.mark.parametrize("name", ["no-such", "file"])
def test_what_is_no_directory_is_rejected(tmp_path: Path, name: str) -> None:
    write(tmp_path, {"file": b""})
    assert error_of(tmp_path / name).problems[0].path.endswith(name)


def test_limit_is_that_of_the_contents(tmp_path: Path) -> None:
    with (tmp_path / "exact").open("wb") as file:
        file.truncate(MOST_BYTES)
    assert package_of(tmp_path).size_bytes == MOST_BYTES
