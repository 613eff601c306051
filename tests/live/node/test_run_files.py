"""Files that runs have written: what is kept of a working directory, and what is not, and why."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import stat
import subprocess
from pathlib import Path

import pytest

from headgate.live.node import run_files
from headgate.live.node.run_files import RunFiles, content_of, forget_earlier, manifest_of
from headgate.model import KEEP_ALL, KeepFiles
from headgate.protocol import KeptFiles

ME = os.geteuid()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """An empty working directory."""
    made = tmp_path / "scratch" / "files"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "written" / "job-1" / "0.1"


def kept(
    work: Path, place: Path, *, tree: Path | None = None, keep: KeepFiles = KEEP_ALL, uid: int = ME
) -> KeptFiles | None:
    """Keep the files of a directory as at the end of a run; None if there are none."""
    files = RunFiles(work, tree="" if tree is None else str(tree), uid=uid, keep=keep)
    return files.keep(place) if files.look() else None


def names(place: Path) -> list[str]:
    manifest = manifest_of(place)
    assert manifest is not None
    return [file.path for file in manifest.files]


def unkept(place: Path) -> dict[str, str]:
    manifest = manifest_of(place)
    assert manifest is not None
    return dict(manifest.unkept)


def contents(place: Path) -> dict[str, bytes]:
    """Return the files that are sent, each only if it has its checksum."""
    manifest, whole = manifest_of(place), b"".join(content_of(place))
    assert manifest is not None
    found = {}
    for file in manifest.files:
        data, whole = whole[: file.size_bytes], whole[file.size_bytes :]
        if hashlib.blake2b(data, digest_size=16).hexdigest() == file.checksum:
            found[file.path] = data
    assert whole == b""
    return found


def test_new_files_are_kept_with_their_bytes_and_the_directory_moves(
    work: Path, place: Path
) -> None:
    (work / "checkpoints").mkdir()
    (work / "checkpoints" / "model.pt").write_bytes(bytes(range(256)) * 9000)
    (work / "empty").touch()
    (work / "tool.sh").write_text("echo")
    (work / "tool.sh").chmod(0o755)
    found = kept(work, place)
    assert found == KeptFiles(files=3, size_bytes=256 * 9000 + 4)
    assert contents(place) == {
        "checkpoints/model.pt": bytes(range(256)) * 9000,
        "empty": b"",
        "tool.sh": b"echo",
    }
    manifest = manifest_of(place)
    assert manifest is not None
    assert [file.executable for file in manifest.files] == [False, False, True]
    assert not work.exists()
    assert stat.S_IMODE((place / "files").stat().st_mode) == 0o700


def test_directory_without_new_files_is_left_alone(work: Path, place: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "src").mkdir(parents=True)
    (tree / "src" / "train.py").write_text("print()")
    (tree / "link").symlink_to("src")
    shutil.rmtree(work)
    subprocess.run(["cp", "-a", f"{tree}/.", work], check=True)
    (work / "new_directory").mkdir()
    (work / "new_link").symlink_to("/etc/passwd")
    assert kept(work, place, tree=tree) is None
    assert work.exists()
    assert not place.exists()


def test_only_what_differs_from_the_package_is_kept(
    work: Path, place: Path, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    (tree / "src").mkdir(parents=True)
    for name in ("same.py", "longer.py", "rewritten.py", "removed.py"):
        (tree / "src" / name).write_text("old")
    shutil.rmtree(work)
    subprocess.run(["cp", "-a", f"{tree}/.", work], check=True)
    (work / "src" / "longer.py").write_text("older")
    (work / "src" / "rewritten.py").write_text("new")  # as long as before
    (work / "src" / "removed.py").unlink()
    (work / "src" / "new.py").write_text("new")
    assert kept(work, place, tree=tree) is not None
    assert names(place) == ["src/longer.py", "src/new.py", "src/rewritten.py"]
    left_there = sorted(path.name for path in (place / "files" / "src").iterdir())
    assert left_there == ["longer.py", "new.py", "rewritten.py"]


def test_only_files_that_the_job_includes_are_kept(work: Path, place: Path) -> None:
    (work / "out").mkdir()
    for name in ("model.pt", "out/last.pt", "out/log.txt", "notes.txt"):
        (work / name).write_text(name)
    keep = KeepFiles(include=("*.pt", "!model.pt"))
    assert kept(work, place, keep=keep) == KeptFiles(files=1, size_bytes=11)
    assert names(place) == ["out/last.pt"]
    assert not (place / "files" / "notes.txt").exists()


def test_bytecode_is_kept_only_if_the_job_includes_it(work: Path, place: Path) -> None:
    for directory in (work / "__pycache__", work / "steps" / "__pycache__"):
        directory.mkdir(parents=True)
        (directory / "loss.cpython-311.pyc").write_bytes(b"code")
    assert kept(work, place) is None
    (work / "model.pt").write_bytes(b"weights")
    keep = KeepFiles(include=("__pycache__/", "*.pt"))
    assert kept(work, place, keep=keep) == KeptFiles(files=3, size_bytes=15)


def test_over_the_limit_the_newest_are_kept_and_the_others_stay_on_the_node(
    work: Path, place: Path
) -> None:
    for age, (name, size_bytes) in enumerate({"c": 60, "b": 70, "a": 50}.items()):
        (work / name).write_bytes(bytes(size_bytes))
        os.utime(work / name, (1000 - age, 1000 - age))
    found = kept(work, place, keep=KeepFiles(limit_bytes=115))
    at = place / "files"
    assert found == KeptFiles(files=2, size_bytes=110, left=1, left_bytes=70, directory=str(at))
    assert names(place) == ["a", "c"]
    assert unkept(place) == {"b": "over the limit"}
    assert (at / "b").stat().st_size == 70


def test_links_devices_sockets_and_pipes_are_skipped_and_named(
    work: Path, place: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("secret")
    (work / "model.pt").write_text("model")
    (work / "latest").symlink_to("model.pt")
    (work / "secrets").symlink_to(secret)
    (work / "broken").symlink_to("nowhere")
    os.mkfifo(work / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(work / "socket"))
    found = kept(work, place)
    assert found is not None
    assert (found.files, found.left, found.skipped) == (1, 0, 5)
    assert contents(place) == {"model.pt": b"model"}
    assert unkept(place) == {
        "latest": "a link to model.pt",
        "secrets": f"a link to {secret}",
        "broken": "a link to nowhere",
        "pipe": "a named pipe",
        "socket": "a socket",
    }


@pytest.mark.skipif(ME != 0, reason="devices, and files of others, need root")
def test_devices_and_files_of_other_users_are_not_sent(work: Path, place: Path) -> None:
    os.mknod(work / "disk", stat.S_IFBLK | 0o600, os.makedev(7, 99))
    for name, uid in (("own", 1), ("foreign", 0)):
        (work / name).write_text(name)
        os.chown(work / name, uid, 0)
    found = kept(work, place, uid=1)
    assert found is not None
    assert (found.files, found.left, found.skipped) == (1, 1, 1)
    assert contents(place) == {"own": b"own"}
    assert unkept(place) == {"disk": "a device", "foreign": "it belongs to another user"}


def test_hard_links_and_files_with_holes_are_files(work: Path, place: Path) -> None:
    (work / "a").write_text("text")
    (work / "b").hardlink_to(work / "a")
    with (work / "holes").open("wb") as file:
        file.truncate(1 << 21)
    with (work / "huge").open("wb") as file:
        file.truncate(1 << 41)  # takes no space, and is no reason to read 2 TiB
    assert kept(work, place) is not None
    assert contents(place) == {"a": b"text", "b": b"text", "holes": bytes(1 << 21)}
    assert unkept(place) == {"huge": "over the limit"}


def test_file_that_is_replaced_by_a_link_after_the_run_is_not_followed(
    work: Path, place: Path, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("secret")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "file").write_text("secret")
    (work / "inner").mkdir()
    for name in ("model", "inner/file", "intact", "gone", "changed"):
        (work / name).write_text("kept..")
    assert kept(work, place) is not None
    files = place / "files"
    (files / "model").unlink()
    (files / "model").symlink_to(tmp_path / "key")
    shutil.rmtree(files / "inner")
    (files / "inner").symlink_to(tmp_path / "inner")
    (files / "gone").unlink()
    (files / "changed").write_text("longer than before")
    assert b"secret" not in b"".join(content_of(place))
    assert contents(place) == {"intact": b"kept.."}


def test_file_that_changes_while_it_is_read_is_left_and_named(
    work: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "growing").write_text("text")
    read = os.read

    def read_while_it_grows(descriptor: int, count: int) -> bytes:
        with (place / "files" / "growing").open("a") as file:
            file.write("more")
        return read(descriptor, count)

    monkeypatch.setattr("headgate.live.node.run_files.os.read", read_while_it_grows)
    found = kept(work, place)
    assert found is not None
    assert (found.files, found.left) == (0, 1)
    assert unkept(place) == {"growing": "it changed while it was read"}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_files, "MOST_FILES", 20)
    monkeypatch.setattr(run_files, "_MOST_COUNTED", 50)


def test_of_very_many_files_a_bounded_number_is_kept_and_named(
    work: Path, place: Path, few: None
) -> None:
    for number in range(60):
        (work / f"{number}").write_text("text")
    found = kept(work, place)
    assert found is not None
    assert (found.files, found.left) == (20, 30)  # of those that are counted
    assert len(unkept(place)) == run_files.NAMED
    assert len(list((place / "files").iterdir())) == 60


def test_names_that_are_no_text_and_depths_beyond_reason_are_left_and_named(
    work: Path, place: Path
) -> None:
    (work / "ok").touch()
    Path(os.fsdecode(os.fsencode(work) + b"/\xff")).write_text("bytes")
    deep = work
    for _ in range(80):
        deep /= "d"
    deep.mkdir(parents=True)
    (deep / "file").write_text("deep")
    found = kept(work, place)
    assert found is not None
    assert (found.files, found.left) == (1, 2)
    assert unkept(place)["\\xff"] == "its name is no UTF-8"


def test_working_directory_that_a_program_replaced_by_a_link_is_not_followed(
    work: Path, place: Path, tmp_path: Path
) -> None:
    work.rmdir()
    work.symlink_to("/etc")
    assert kept(work, place) is None
    assert not place.exists()


def test_without_a_manifest_nothing_is_sent_and_all_stays(
    work: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk, or where the executor is killed before the end."""
    (work / "model").write_text("model")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_files, "write_private", full)
    found = kept(work, place)
    at = place / "files"
    assert found == KeptFiles(left=1, left_bytes=5, directory=str(at))
    assert manifest_of(place) is None
    assert (at / "model").read_text() == "model"


def test_directory_that_cannot_be_moved_stays_where_it_is(work: Path, place: Path) -> None:
    (work / "model").write_text("model")
    place.parent.parent.mkdir()
    place.parent.write_text("no directory")
    assert kept(work, place) == KeptFiles(left=1, left_bytes=5, directory=str(work))
    assert (work / "model").read_text() == "model"


def test_files_of_a_run_replace_those_of_earlier_runs_of_its_task(tmp_path: Path) -> None:
    for name in ("0.1", "0.2", "0.10", "1.1", "10.1"):
        (tmp_path / name / "files").mkdir(parents=True)
    forget_earlier(tmp_path / "0.10")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.10", "1.1", "10.1"]
