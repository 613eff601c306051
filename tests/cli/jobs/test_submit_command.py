"""One line submits: commands and scripts as jobs, with the options of a job file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

SAVE = b""
COPY = "copy of the directory at submission"


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
        (["--array", "9-3", "--", "true"], "--array: 9-3 has no number"),
        (["--array", "0-99%0", "--", "true"], "--array: 0-99%0 lets no task run"),
        (["--array", "0-99:2", "--", "true"], "--array: '0-99:2' has a step"),
        (["--array", "1,3", "--", "true"], "--array: '1,3' is a list"),
        (["--array", "a-b", "--", "true"], "--array: 'a-b' is no range"),
        (
            ["--array", "0-99999999", "--", "true"],
            "100,000,000 numbers, and a job at most 1,000,000",
        ),
        (["--array", "0-9", "--ray", __file__], "--array: does not go with --ray"),
        (["--env", "NOWHERE_SET", "--", "true"], "--env: NOWHERE_SET is not set here"),
        (["--time-limit", "soon", "--", "true"], "--time-limit"),
        (["--nodes", "2", "--array", "0-3", "--", "true"], "count"),
        (["--gpu-model", "H100", "--gpu-model", "L4", "--", "true"], "no H100 or L4 GPU (but"),
        (["--gpu-model", "H100", "--gpus", "0", "--", "true"], "--gpu-model"),
        (
            ["--label", "ml", "--label", "!spot", "--", "true"],
            "a GPU on one node with labels ml, !spot",
        ),
        (["--label", "a b", "--", "true"], "must be labels"),
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


def test_all_problems_of_options_are_reported_together(up: Any) -> None:
    output = up("submit", "--array", "9-3%0", "--env", "NOWHERE", "-o", "json", "--", "true")
    assert [each["path"] for each in output.error["problems"]] == ["--env", "--array", "--array"]


def test_array_begins_at_any_index(submitted: Any, controller: Any) -> None:
    launch, _ = submitted("--array", "5-9", "--", "echo", "{index}")
    assert len(controller.engine.state.job(0).tasks) == 5
    for each in controller.launches.values():
        assert each.program.index == each.run.ordinal + 5
    assert launch.program.stage.count == 5


ELASTIC = "{run: a, elastic: {min: 1, max: 2}}"
FILE = """\
name: sweep
envs: {A: in-file, B: kept}
tasks:
  count: 3
  run: python train.py
  resources: {gpus: 4, memory: 1GiB}
  retries: 1
"""


def test_command_line_wins_over_a_job_file_and_one_note_says_so(
    submitted: Any, job_file: Any, controller: Any
) -> None:
    launch, output = submitted(
        job_file(FILE),
        *("--gpus", "2", "--name", "mine", "--time-limit", "1h", "--array", "4-5%1"),
        *("--env", "A=on-line", "--env", "C=new", "--retries", "1"),
    )
    job = controller.engine.state.job(0)
    assert (job.name, job.retries, len(job.tasks), job.max_running) == ("mine", 1, 2, 1)
    assert (launch.holds.gpus, launch.holds.memory_bytes) == (2, 1 << 30)
    assert launch.time_limit_s == 3600
    assert {"A": "on-line", "B": "kept", "C": "new"}.items() <= launch.program.envs.items()
    (note,) = output.err.splitlines()
    assert note.startswith("note: the command line wins over ")
    for change in (
        "tasks.resources.gpus: 4 in the file, 2 on the command line",
        "name: sweep in the file, mine on the command line",
        "tasks.count: 3 in the file, 2 on the command line",
        "envs.A: one value in the file, another on the command line",
    ):
        assert change in note
    assert "retries" not in note, "the values are equal"
    assert "in-file" not in note, "values of variables may be secret"


def test_what_the_command_line_replaces_is_in_the_warnings_of_json(
    submitted: Any, job_file: Any
) -> None:
    path = job_file("{run: 'true', resources: {gpus: 2}}")
    _, output = submitted(path, "--gpus", "1", "--retries", "2", "-o", "json")
    (warning,) = output.json["warnings"]
    assert (warning["path"], warning["hint"]) == ("tasks.resources.gpus", "the command line wins")
    assert warning["problem"] == "2 in the file, 1 on the command line"
    assert output.json["job"] == output.json["id"] == "job-1"


def test_options_for_a_ray_file_and_a_directory_of_the_command_line_find_their_place(
    up: Any, job_file: Any, tmp_path: Path, controller: Any
) -> None:
    controller.on_launch = lambda launch: SAVE
    (tmp_path / "train.py").write_text("print(1)")
    file = job_file("{ray: {script: train.py, resources: {gpus: 2}}}")
    output = up("submit", file, "--gpus", "1", "--cpus", "2", "--retries", "3", "--dry-run")
    assert output.code == 0, output.err
    assert "ray.resources.gpus: 2 in the file, 1 on" in output.err
    plain = job_file("{run: 'python train.py', working_dir: .}")
    other = tmp_path / "elsewhere"
    other.mkdir()
    output = up("submit", plain, "--working-dir", "elsewhere")
    assert output.code == 0, output.err
    assert f"working_dir: . in the file, {other} on the command line" in output.err


def test_resources_and_retries_of_the_command_line_are_of_each_unit_of_an_elastic_job(
    up: Any, job_file: Any, controller: Any
) -> None:
    file = job_file("{run: 'true', elastic: {unit: {gpus: 1, cpus: 1}, min: 1, max: 2}}")
    output = up("submit", file, "--gpus", "2", "--retries", "3")
    assert "elastic.unit.gpus: 1 in the file, 2 on the command line" in output.err
    job = controller.engine.state.job(0)
    assert (job.retries, [task.demand.gpus for task in job.tasks]) == (3, [2, 2])


@pytest.mark.parametrize(
    ("file", "arguments", "problem"),
    [
        (ELASTIC, ["--array", "0-3"], "--array: does not go with 'elastic' of the file"),
        (ELASTIC, ["--nodes", "2"], "num_nodes: an elastic job has equal units"),
        (ELASTIC, ["--time-limit", "1h"], "time_limit: an elastic job has equal units"),
        (ELASTIC, ["--gpus", "much"], "elastic.unit.gpus: must be whole GPUs"),
        (
            "{data: {d: {files: [/x]}}, tasks: {for_each: d, run: a}, reduce: {run: b}}",
            ["--gpus", "2"],
            "--gpus: the file has several stages: tasks, reduce",
        ),
        (
            "{data: {d: {files: [/x]}}, tasks: {for_each: d, run: a}}",
            ["--array", "0-3"],
            "--array: does not go with for_each of the file",
        ),
        ("{run: a, num_nodes: 2}", ["--array", "0-3"], "--array: does not go with 'num_nodes'"),
        ("{ray: {script: /x.py}}", ["--array", "0-3"], "--array: does not go with 'ray'"),
        ("{run: a, venv: /v}", ["--pip", "numpy"], "venv: a job has 'pip' or 'venv', not both"),
        ("{run: a}", ["--gpus", "much"], "tasks.resources.gpus"),
        ("{nam: a,\n run: a}", ["--gpus", "1"], "nam (line 1): unknown key"),
    ],
)
def test_options_that_a_job_file_has_no_place_for_are_errors_with_hints(
    up: Any, job_file: Any, controller: Any, file: str, arguments: list[str], problem: str
) -> None:
    output = up("submit", job_file(file), *arguments)
    assert output.code == 2
    assert problem.replace("tasks.resources.gpus", "resources.gpus") in output.err
    assert not controller.engine.state.names.jobs


SCRIPTS = {
    "plain.sh": (b"echo hello\n", "exec bash plain.sh"),
    "strict.sh": (b"#!/bin/sh -e\nfalse\n", "exec /bin/sh -e strict.sh"),
    "python.sh": (b"#!/usr/bin/env python3\nprint(1)\n", "exec /usr/bin/env python3 python.sh"),
    "other.py": (b"#!/usr/bin/python2\r\nprint(1)\n", "exec python other.py"),
    "noted": (b"#!/bin/sh\ntrue\n", "exec /bin/sh noted"),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_that_is_not_executable_runs_by_its_first_line_or_its_kind(
    submitted: Any, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_bytes(SCRIPTS[name][0])
    launch, _ = submitted(name)
    assert launch.program.stage.run == SCRIPTS[name][1]


def test_executable_file_here_is_the_program_unless_the_path_has_one(
    submitted: Any, tmp_path: Path, controller: Any
) -> None:
    for name in ("my-tool", "true"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
        submitted("--", name, "x")
    runs = [launch.program.stage.run for launch in controller.launches.values()]
    assert runs == ["exec ./my-tool x", "exec true x"]


def test_words_behind_a_script_belong_to_it_but_those_behind_a_job_file_do_not(
    submitted: Any, tmp_path: Path, job_file: Any, up: Any
) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    launch, _ = submitted("train.py", "--gpus", "9", "--lr", "3")
    assert launch.program.stage.run == "exec python train.py --gpus 9 --lr 3"
    assert up("submit", job_file("{run: 'true'}"), "--gpus", "99").code == 105


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("none.sh", None, "none.sh: there is no such file"),
        ("empty.sh", b"", "empty.sh: is empty"),
        ("binary.py", b"\x7fELF\0\0", "binary.py: is not text, so it is no script"),
        ("windows.sh", b"#!/bin/sh\r\ntrue\r\n", "windows.sh: has the line ends of Windows"),
        ("./tool", b"true\n", "./tool: is not executable, and has no #! line"),
        ("./", None, "./: is a directory, not a program"),
    ],
)
@pytest.mark.parametrize("verb", ["submit", "run"])
def test_script_that_cannot_run_is_reported_at_submission(
    up: Any, tmp_path: Path, controller: Any, verb: str, name: str, content: bytes, problem: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    output = up(verb, "--", name, "x")
    assert (output.code, output.out) == (2, "")
    assert problem in output.err
    assert not controller.engine.state.names.jobs


def test_script_is_looked_for_where_the_job_runs(
    submitted: Any, up: Any, tmp_path: Path, controller: Any
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text("print(1)")
    submitted("--working-dir", "project", "train.py")
    assert up("submit", "train.py").code == 2
    assert up("submit", "--", "python", "/only/on/nodes.py").code == 0
    assert up("submit", "/only/on/nodes.py").code == 0


def test_a_warning_names_ignored_options_for_another_scheduler_in_a_script(
    submitted: Any, tmp_path: Path
) -> None:
    (tmp_path / "job.sh").write_text("#!/bin/bash\n#SBATCH --gres=gpu:4\ntrue\n")
    _, output = submitted("job.sh")
    assert "warning: job.sh: lines that begin with #SBATCH are ignored" in output.err
    assert "--gpus 2 job.sh" in output.err


@pytest.mark.parametrize(
    ("words", "problem", "hint"),
    [
        (["cd x && python y"], "is one word, and there is no such file", "sh -c"),
        (["python train.py", "--lr"], "is one word, and there is no such file", "the quotes"),
        (["FOO=1", "python"], "no shell reads the command", "--env FOO=1"),
        (["cd", "/tmp"], "is a command of shells, no program", "sh -c"),
    ],
)
def test_what_only_a_shell_can_read_is_an_error_with_a_hint(
    up: Any, controller: Any, words: list[str], problem: str, hint: str
) -> None:
    output = up("submit", "--", *words)
    assert output.code == 2
    assert problem in output.err
    assert hint in output.err
    assert not controller.engine.state.names.jobs


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["echo", "$HEADGATE_INDEX", ">", "~/out"], ">, ~/out, $HEADGATE_INDEX"),
        (["python", "-c", "1", "${MINE}"], "$MINE"),
        (["sh", "-c", "echo $HOME > ~/x"], None),
        (["awk", "{print $HOME}"], None),
        (["grep", "x$", "*.py"], None),
    ],
)
def test_a_warning_names_words_that_no_shell_reads(
    submitted: Any, words: list[str], named: str | None
) -> None:
    _, output = submitted("--env", "MINE=1", "--", *words)
    if named is None:
        assert output.err == ""
    else:
        assert f"warning: {named}: is passed on as it stands" in output.err


def test_mistyped_file_is_reported_as_missing(up: Any, controller: Any) -> None:
    output = up("submit", "joob.yaml")
    assert output.code != 0
    assert "joob.yaml" in output.err
    assert up("submit", "no-such-program-here").code != 0
    assert not controller.engine.state.names.jobs


@pytest.mark.parametrize(
    ("options", "shown", "noted"),
    [
        ((), "{here}", "{here} itself, which all nodes share"),
        (("--working-dir", "shared"), "{here}", "{here} itself, which all nodes share"),
        (("--working-dir", "."), f"a {COPY}", f"a {COPY}"),
        (("--working-dir", "none"), None, ""),
    ],
)
def test_command_runs_where_its_working_directory_says_and_get_shows_it(
    up: Any,
    controller: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    shown: str | None,
    noted: str,
) -> None:
    controller.unshared = {}
    here = tmp_path / "project"
    here.mkdir()
    monkeypatch.chdir(here)
    output = up("submit", *options, "--", "make")
    assert output.err == (f"it runs in {noted.format(here=here)}\n" if noted else "")
    lines = up("get", "job-1").out.splitlines()
    found = [line.removeprefix("Runs in: ") for line in lines if line.startswith("Runs in")]
    assert found == ([] if shown is None else [shown.format(here=here)])


def test_shared_directory_that_nodes_lack_is_refused_with_their_names(
    up: Any, controller: Any
) -> None:
    output = up("submit", "--working-dir", "shared", "--", "make")
    assert output.code == 2
    assert "is not shared by all nodes: n0, n1: No such file or directory" in output.err
    assert "'working_dir: .' sends a copy" in output.err
    assert not controller.engine.state.names.jobs
