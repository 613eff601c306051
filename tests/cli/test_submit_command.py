"""One line submits: commands and scripts as jobs, with the options of a job file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

SAVE = b""


@pytest.fixture
def submitted(up: Any, controller: Any) -> Any:
    """Submit with these arguments, and return the job's first run and the output."""
    controller.on_launch = lambda launch: SAVE

    def submit(*arguments: str) -> tuple[Any, Any]:
        output = up("submit", *arguments)
        assert output.code == 0, output.err
        return next(iter(controller.launches.values())), output

    return submit


def test_command_behind_two_dashes_is_submitted_and_its_id_printed(submitted: Any) -> None:
    launch, output = submitted("--gpus", "2", "--", "python", "-c", "print('a b')", "--gpus", "1")
    assert output.out == "submitted job-1\n"
    assert launch.program.stage.run == """exec python -c 'print('"'"'a b'"'"')' --gpus 1"""
    assert launch.holds.gpus == 2


@pytest.mark.parametrize(
    ("script", "run"),
    [
        ("train.py", "exec python train.py --lr 3"),
        ("job.sh", "exec bash job.sh --lr 3"),
        ("./tool", "exec ./tool --lr 3"),
    ],
)
def test_script_runs_by_the_program_for_its_kind(
    submitted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, run: str
) -> None:
    project = tmp_path / "project"  # beside the home directory, which is never sent
    project.mkdir()
    monkeypatch.chdir(project)
    (project / script).write_text("true")
    (project / script).chmod(0o755)
    launch, _ = submitted("--", script, "--lr", "3")
    assert launch.program.stage.run == run
    assert launch.program.environment.package, "its directory is sent"


def test_script_alone_needs_no_dashes(
    submitted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print(1)")
    launch, _ = submitted("train.py")
    assert launch.program.stage.run == "exec python train.py"


def test_program_on_the_path_alone_is_a_command(submitted: Any) -> None:
    launch, _ = submitted("true")
    assert launch.program.stage.run == "exec true"


def test_options_are_keys_of_the_job_file(
    submitted: Any, monkeypatch: pytest.MonkeyPatch, controller: Any
) -> None:
    monkeypatch.setenv("MINE", "yes")
    launch, _ = submitted(
        *("--cpus", "2", "--gpus", "0", "--memory", "1GiB", "--name", "mine", "--priority", "3"),
        *("--time-limit", "2h", "--env", "A=1=2", "--env", "MINE", "--retries", "4"),
        *("--", "true"),
    )
    assert (launch.holds.cpus_milli, launch.holds.memory_bytes) == (2000, 1 << 30)
    assert launch.time_limit_s == 7200
    assert {"A": "1=2", "MINE": "yes"}.items() <= launch.program.envs.items()
    job = controller.engine.state.job(0)
    assert (job.name, job.priority, job.retries) == ("mine", 3, 4)


def test_array_is_a_job_of_numbered_tasks(submitted: Any, controller: Any) -> None:
    launch, _ = submitted("--array", "0-4%2", "--", "echo", "{index}")
    job = controller.engine.state.job(0)
    assert (len(job.tasks), job.max_running) == (5, 2)
    assert launch.program.stage.count == 5


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--array", "4", "--", "true"], "--array: '4' is no range"),
        (["--array", "3-9", "--", "true"], "--array: begins at 3"),
        (["--array", "0-99%0", "--", "true"], "max_running"),
        (["--array", "0-99999999", "--", "true"], "tasks.count"),
        (["--env", "NOWHERE_SET", "--", "true"], "--env: NOWHERE_SET is not set here"),
        (["--time-limit", "soon", "--", "true"], "time_limit"),
        (["--nodes", "2", "--array", "0-3", "--", "true"], "count"),
        (["--gpu-model", "H100", "--gpu-model", "L4", "--", "true"], "no H100 or L4 GPU (but"),
        (["--gpu-model", "H100", "--gpus", "0", "--", "true"], "tasks.resources.gpu_model"),
    ],
)
def test_invalid_options_are_reported_and_nothing_is_submitted(
    up: Any, controller: Any, arguments: list[str], problem: str
) -> None:
    output = up("submit", *arguments)
    assert output.code != 0
    assert problem in output.err
    assert "Traceback" not in output.err
    assert not controller.engine.state.names.jobs


def test_options_with_a_job_file_are_rejected_with_a_hint(up: Any, job_file: Any) -> None:
    output = up("submit", "--gpus", "2", job_file("{run: 'true'}"))
    assert output.code == 2
    assert "--gpus: goes with a command or --ray" in output.err
    assert "write it into the job file" in output.err


def test_mistyped_file_is_reported_as_missing(up: Any, controller: Any) -> None:
    output = up("submit", "joob.yaml")
    assert output.code != 0
    assert "joob.yaml" in output.err
    assert up("submit", "no-such-program-here").code != 0
    assert not controller.engine.state.names.jobs
