"""Files that runs have left: what verbs say of them, and how they are fetched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headgate.protocol import KeptFiles, TaskFinished, Usage

JOB = "{name: train, run: python train.py, resources: {gpus: 0}}"
PAIR = "{name: pair, tasks: {count: 2, run: python train.py, resources: {gpus: 0}}}"
FILES = {"checkpoints/model.pt": b"the model", "log.txt": b"", "tool": b"x" * 100}


def leave(
    controller: Any, job: str, ordinal: int, files: dict[str, bytes], *, left: int = 0
) -> None:
    """End a run that has left these files."""
    kept = KeptFiles(
        files=len(files),
        size_bytes=sum(map(len, files.values())),
        left=left,
        left_bytes=left << 30,
        directory="/var/hg/n0/written" if left else "",
    )
    controller.files[job, ordinal] = files
    controller.clock += 1
    run = controller.launches[job, ordinal].run
    controller.handle(TaskFinished(at=controller.clock, run=run, usage=Usage(kept=kept)))


@pytest.fixture
def job(up: Any, job_file: Any, controller: Any) -> str:
    """A finished job of one task that has left files."""
    name = str(up("submit", job_file(JOB), "-o", "json").json["id"])
    leave(controller, name, 0, FILES)
    return name


def found_below(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_files_are_named_by_get_and_fetched_into_a_directory(
    up: Any, job: str, tmp_path: Path
) -> None:
    shown = f"Files: 3 files kept, 109 B: headgate get {job} --files ."
    assert shown in up("get", job).out.replace("\n", " ")
    there = tmp_path / "new" / "place"
    assert up("get", job, "--files", str(there)).out == f"3 files, 109 B, in {there}\n"
    assert found_below(there) == FILES
    again = up("get", job, "--files", str(there), "-o", "json").json  # the same: no question
    assert [file["path"] for file in again["files"]] == list(FILES)
    assert (again["size_bytes"], again["unkept"]) == (109, [])


def test_numbers_of_files_are_in_the_json_of_a_job_and_its_tasks(up: Any, job: str) -> None:
    view = up("get", job, "-o", "json").json
    none = {"left": 0, "left_bytes": 0, "skipped": 0}
    counts = {"count": 3, "size_bytes": 109, **none}
    assert view["files"] == {"tasks": 1, **counts, "left_in": []}
    at = {"attempt": 1, "node": "n0", "directory": None}
    assert view["task_list"][0]["files"] == {**counts, **at}


def test_files_of_several_tasks_go_into_a_directory_for_each(
    up: Any, job_file: Any, controller: Any, tmp_path: Path
) -> None:
    name = up("submit", job_file(PAIR), "-o", "json").json["id"]
    leave(controller, name, 0, {"a": b"0"})
    leave(controller, name, 1, {"a": b"1"})
    up("get", name, "--files", str(tmp_path / "all"))
    assert found_below(tmp_path / "all") == {"0/a": b"0", "1/a": b"1"}
    up("get", name, "--files", str(tmp_path / "one"), "--task", "1")
    assert found_below(tmp_path / "one") == {"a": b"1"}


def test_files_with_other_content_are_replaced_only_when_confirmed(
    up: Any, job: str, tmp_path: Path
) -> None:
    (tmp_path / "log.txt").write_text("mine")
    refused = up("get", job, "--files", str(tmp_path), "-o", "json")
    assert refused.error["code"] == "needs_confirmation"
    assert "log.txt: other content is there" in str(refused.error)
    assert not (tmp_path / "tool").exists()
    assert up("get", job, "--files", str(tmp_path), "-y").code == 0
    assert (tmp_path / "log.txt").read_bytes() == b""


def test_no_file_is_written_through_a_link_or_outside_the_directory(
    up: Any, job: str, controller: Any, tmp_path: Path
) -> None:
    there, outside = tmp_path / "there", tmp_path / "outside"
    there.mkdir()
    outside.mkdir()
    (there / "checkpoints").symlink_to(outside)
    (there / "tool").symlink_to(outside / "tool")
    refused = up("get", job, "--files", str(there), "-y", "-o", "json")
    assert [problem["path"] for problem in refused.error["problems"]] == [
        str(there / "checkpoints" / "model.pt"),
        str(there / "tool"),
    ]
    for path in ("../evil", "/evil", "a/../../evil", "a//b"):
        controller.files[job, 0] = {path: b"evil"}
        assert up("get", job, "--files", str(there / "new"), "-o", "json").error["code"] == (
            "protocol"
        )
    assert found_below(outside) == found_below(there) == {}
    assert not (tmp_path / "evil").exists()


def test_damaged_file_is_named_and_all_others_are_written(
    up: Any, job: str, controller: Any, tmp_path: Path
) -> None:
    controller.damaged["checkpoints/model.pt"] = b"THE MODEL"
    error = up("get", job, "--files", str(tmp_path / "out"), "-o", "json").error
    assert error["code"] == "files_damaged"
    assert [problem["path"] for problem in error["problems"]] == ["checkpoints/model.pt"]
    assert found_below(tmp_path / "out") == {"log.txt": b"", "tool": b"x" * 100}


def test_files_that_stay_on_a_node_are_a_warning_with_node_and_directory(
    up: Any, job_file: Any, controller: Any, tmp_path: Path
) -> None:
    name = up("submit", job_file(JOB), "-o", "json").json["id"]
    leave(controller, name, 0, FILES, left=2)
    for command in (("get", name), ("get", name, "--files", str(tmp_path / "out"))):
        ended = up(*command)
        text = " ".join((ended.out + ended.err).split())
        assert "2 files, 2 GiB, cannot be fetched, and stay until the results expire" in text
        assert "/var/hg/n0/written on n0" in text


def test_the_end_of_a_job_says_how_to_get_its_files(
    up: Any, job_file: Any, controller: Any
) -> None:
    """Also where it fails; nothing is printed of a job that has left none."""

    controller.on_launch = lambda _: "it broke"
    left = KeptFiles(files=1, size_bytes=41 << 20)
    for name, kept, said in (
        ("some", left, "1 file kept, 41 MiB: headgate get job-1 --files .\n"),
        ("none", None, ""),
    ):
        controller.kept = kept
        job = job_file(f"{{name: {name}, run: x, resources: {{gpus: 0}}}}")
        waited = up("submit", "--wait", job)
        assert (waited.code, waited.err) == (100, said)


def test_the_end_of_a_job_says_what_is_not_kept_and_what_names_it(
    up: Any, job_file: Any, controller: Any
) -> None:
    controller.on_launch = lambda _: "it broke"
    controller.kept = KeptFiles(
        files=1, size_bytes=3, left=2, left_bytes=9, skipped=2, directory="/var/hg"
    )
    said = " ".join(up("submit", "--wait", job_file(JOB)).err.split())
    names = "headgate get job-1 --files DIR names them"
    assert "1 file kept, 3 B: headgate get job-1 --files ." in said
    assert f"2 items not kept (links, devices, sockets, pipes): {names}" in said
    assert "2 files, 9 B, cannot be fetched" in said
    assert said.endswith(f"which files are kept; {names}")
    shown = " ".join(up("get", "job-1").out.split())
    assert "2 items not kept (links, devices, sockets, pipes)" in shown


def test_job_without_files_says_so(up: Any, job_file: Any, tmp_path: Path) -> None:
    name = up("submit", job_file(JOB), "-o", "json").json["id"]
    assert "Files" not in up("get", name).out
    missing = up("get", name, "--files", str(tmp_path), "-o", "json")
    assert missing.error["code"] == "not_found"
