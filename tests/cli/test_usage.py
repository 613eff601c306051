"""Invalid command lines, help, completion: no traceback, and one object with -o json."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli import program

from headgate.cli.cluster import show

VERBS = {
    "up", "down", "run", "submit", "jobs", "get", "why", "logs", "cancel", "nodes", "queues", "top",
    "topology", "data", "plan", "policies", "simulate", "reproduce", "demo", "pack", "migrate",
    "drain", "resume", "label", "scale",
}  # fmt: skip


def test_help_lists_all_verbs(headgate: Any) -> None:
    output = headgate("--help")
    assert output.code == 0
    assert {line.split()[0] for line in output.out.split("Commands:")[1].splitlines() if line} == {
        *VERBS
    }
    assert headgate().out == output.out


@pytest.mark.parametrize("group", ["", "data", "reproduce"])
def test_list_of_verbs_has_a_whole_sentence_on_each_line_of_80_columns(
    headgate: Any, monkeypatch: pytest.MonkeyPatch, group: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    listed = [v for v in program.VERBS if v.startswith(f"{group} ")] if group else VERBS
    lines = headgate(*group.split(), "--help").out.split("Commands:\n")[1].splitlines()
    assert len(lines) == len(listed)
    for line in lines:
        assert line.endswith("."), line
        assert not line.endswith("..."), line
        assert len(line) <= 80, line


@pytest.mark.parametrize("verb", [*sorted(VERBS), *program.VERBS])
def test_every_verb_has_help(headgate: Any, verb: str) -> None:
    output = headgate(*verb.split(), "--help")
    assert (output.code, output.err) == (0, "")
    assert output.out.startswith(f"Usage: headgate {verb}")


def test_the_version_is_the_package_s(headgate: Any) -> None:
    assert headgate("--version").out == "headgate 0.1.0\n"


@pytest.mark.parametrize(
    ("arguments", "path", "problem", "hint"),
    [
        ("sumbit", "sumbit", "there is no verb 'sumbit'", "did you mean 'submit'?"),
        ("data pt", "pt", "there is no verb 'pt'", "did you mean 'put'?"),
        ("nosuch", "nosuch", "there is no verb 'nosuch'", "known: cancel, data, "),
        ("jobs --lmit 3", "--lmit", "there is no option '--lmit'", "did you mean '--limit'?"),
        ("jobs --zzz", "--zzz", "there is no option '--zzz'", "see headgate jobs --help"),
        ("jobs -x", "-x", "there is no option '-x'", "see headgate jobs --help"),
        ("jobs --limit x", "--limit", "'x' is not a whole number", "see headgate jobs --help"),
        ("submit --cpus x y", "--cpus", "'x' is not a number", "see headgate submit --help"),
        ("jobs --limit 0", "--limit", "must be at least 1, not 0", "see headgate jobs --help"),
        ("up --nodes 65", "--nodes", "must be at most 64, not 65", "see headgate up --help"),
        ("up --nodes 0", "--nodes", "must be at least 1, not 0", "see headgate up --help"),
        ("jobs --limit", "--limit", "needs a value after it", "see headgate jobs --help"),
        ("data put f --shard", "--shard", "needs a value after it", "see headgate data put --help"),
        ("jobs --all=yes", "--all", "takes no value", "write --all, not --all=yes"),
        ("get", "JOB", "is missing", "see headgate get --help"),
        ("submit", "FILE", "is missing", "headgate submit FILE, "),
        ("data put --name x", "FILE...", "is missing", "see headgate data put --help"),
        ("get a b", "b", "is one argument too many", "headgate get takes JOB"),
        ("top a b", "a b", "are too many arguments", "headgate top takes no arguments"),
        ("jobs sleep-2", "sleep-2", "is one argument too many", "headgate get JOB shows one job"),
        ("up --gpu-memory huge", "--gpu-memory", "'huge' is not a size", "write bytes or a unit"),
        ("up --log-limit 4k", "--log-limit", "must be at least 1 MiB", ""),
        ("up --policy zzz", "policy", "there is no policy 'zzz'", "known: "),
        ("up --nodes 2 --racks 3", "--racks", "3 racks for 2 nodes", ""),
    ],
)
def test_an_invalid_command_line_is_an_error_with_place_problem_and_hint(
    headgate: Any, monkeypatch: pytest.MonkeyPatch, arguments: str, path: str, problem: str,
    hint: str,
) -> None:  # fmt: skip
    assert headgate(*arguments.split()).err.startswith(f"error: {path}: {problem}\n")
    monkeypatch.setenv("HEADGATE_OUTPUT", "json")
    output = headgate(*arguments.split())
    assert output.code == 2
    (found,) = output.error["problems"]
    assert (found["path"], found["problem"]) == (path, problem)
    assert found["hint"].startswith(hint)


@pytest.mark.parametrize("arguments", ["-o json", "-ojson", "--format json", "--format=json"])
def test_errors_of_the_command_line_are_json_if_it_requests_json(
    headgate: Any, arguments: str
) -> None:
    assert headgate("jobs", *arguments.split(), "--limit").error["code"] == "usage"


def test_an_invalid_choice_lists_the_valid_ones(headgate: Any) -> None:
    output = headgate("jobs", "-o", "xml")
    assert output.code == 2
    assert output.err.startswith("error: --format: 'xml' is not one of 'table', 'wide', 'json'")


def test_hints_name_near_options(headgate: Any) -> None:
    assert "did you mean '--limit'?" in headgate("jobs", "--limt", "3").err
    assert "did you mean '--state-dir'?" in headgate("nodes", "--state", "x").err


def test_a_directory_is_no_state_of_jobs(headgate: Any, state: Path) -> None:
    assert "--state-dir" in headgate("jobs", "--state", str(state)).err


def test_a_missing_controller_is_an_error_of_the_environment(headgate: Any, state: Path) -> None:
    output = headgate("jobs", "--state-dir", str(state), "-o", "json")
    assert output.code == 1
    assert output.error["code"] == "unreachable"
    assert output.error["problems"][0]["hint"] == "start one: headgate up"


def test_errors_have_the_format_of_the_settings(
    headgate: Any, state: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEADGATE_STATE", str(state))
    (tmp_path / ".headgate.yaml").write_text("output: json\n")
    assert headgate("jobs").error["code"] == "unreachable"
    assert headgate("jobs", "-o", "table").err.startswith("error: ")
    monkeypatch.setenv("HEADGATE_OUTPUT", "table")
    assert headgate("jobs").err.startswith("error: ")


def test_a_state_directory_too_deep_for_a_socket_is_rejected(headgate: Any) -> None:
    output = headgate("jobs", "--state-dir", "/tmp/" + "x" * 120, "-o", "json")
    assert output.code == 2
    assert "107" in output.error["problems"][0]["problem"]


def test_an_internal_error_is_reported_without_a_traceback(
    headgate: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(show, "settle", lambda *_: {}["what"])
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    output = headgate("nodes", "-o", "json")
    assert output.code == 1
    assert output.error["code"] == "internal"
    assert "KeyError" in output.error["problems"][0]["problem"]
    (written,) = tmp_path.glob("headgate-error-*.txt")
    assert str(written) in output.error["problems"][0]["hint"]
    assert "Traceback" in written.read_text()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_made(shell: str) -> None:
    program = "from headgate.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "--show-completion", shell],
        capture_output=True, text=True, check=True,
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
    )  # fmt: skip
    assert "_HEADGATE_COMPLETE" in done.stdout


def test_verbs_are_completed(headgate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_HEADGATE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "headgate su")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert headgate().out.split() == ["submit"]


def test_starting_up_loads_neither_ray_nor_the_server() -> None:
    program = (
        "import sys, headgate.cli.main as m\n"
        "m.run(['simulate', '--help'])\n"
        "print([name for name in ('ray', 'fastapi', 'uvicorn') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("verb", sorted(VERBS - {"data", "reproduce"}))
def test_every_verb_has_a_format_option(headgate: Any, verb: str) -> None:
    assert "--format" in headgate(verb, "--help").out


LONG, NO_TEXT = "x" * 5000, os.fsdecode(b"\xff\xfe")


@pytest.mark.parametrize("verb", ["get", "why", "logs", "cancel", "get --output y"])
@pytest.mark.parametrize(
    "name",
    ["", "a/b", "a/../..", "..", ".", "a b", "a\nb", "a%2fb", "?", "#", LONG, NO_TEXT, "jöb"],
)
def test_an_invalid_job_name_is_rejected_without_a_request(up: Any, verb: str, name: str) -> None:
    output = up(*verb.split(), name, "-o", "json")
    assert (output.code, output.error["code"]) == (2, "usage")
    (problem,) = output.error["problems"]
    assert "HTTP" not in problem["problem"]
    assert "/api/" not in problem["problem"] + problem["path"]


@pytest.mark.parametrize("name", ["", "a/b", "..", "a b", LONG, NO_TEXT, "x" * 101])
def test_an_invalid_dataset_name_is_rejected(up: Any, tmp_path: Path, name: str) -> None:
    (tmp_path / "numbers").write_text("1\n")
    verbs = [("data", "put", "numbers", "--name"), ("data", "ls"), ("data", "rm", "-y")]
    for verb in verbs[: 1 if name == "x" * 101 else 3]:
        output = up(*verb, name, "-o", "json")
        assert (output.code, output.error["code"]) == (2, "usage")
    (tmp_path / "my numbers.bin").write_text("1\n")
    output = up("data", "put", "my numbers.bin", "-o", "json")
    assert (output.code, output.error["problems"][0]["path"]) == (2, "--name")
    assert "with --name" in output.error["problems"][0]["hint"]


@pytest.mark.parametrize(
    "option",
    ["jobs --user", "jobs --queue", "jobs --state", "plan --policy", "plan --like", "up --policy",
     "simulate --trace", "up --queues", "up --group", "up --address", "data put x --shard",
     "submit", "data put", "jobs --limit", "up --gpu-memory", "up --token-file", "simulate"],
)  # fmt: skip
def test_invalid_values_of_options_are_usage_errors(up: Any, tmp_path: Path, option: str) -> None:
    (tmp_path / "x").write_text("1\n")
    nodes = ["--nodes", "1"] if option == "plan --like" else []
    for value in (LONG, NO_TEXT, "a\nb", ""):
        output = up(*option.split(), value, *nodes, "-o", "json")
        assert output.code == 2, output
        assert output.error["code"] != "internal"


@pytest.mark.parametrize("directory", ["", LONG, "file", "~no-such-user"])
def test_an_invalid_state_directory_is_no_internal_error(
    headgate: Any, tmp_path: Path, directory: str
) -> None:
    (tmp_path / "file").touch()
    for verb in (["jobs"], ["up", "--nodes", "1"], ["down", "-y"]):
        output = headgate(*verb, "--state-dir", directory, "-o", "json")
        assert output.code in (0, 1, 2)
        assert output.code == 0 or output.error["code"] != "internal", output


@pytest.mark.parametrize(
    "arguments",
    ["submit 'x; rm -rf /'", "data put 'x; y'", "up --queues 'x; y'", "simulate 'x; y'",
     "up --gpu-memory 'x; y'", "data put f --shard 'x; y'", "submit f"],
)  # fmt: skip
def test_a_semicolon_in_a_value_does_not_split_the_message(
    headgate: Any, tmp_path: Path, arguments: str
) -> None:
    (tmp_path / "f").write_text("name: 'x; y'\nrun: z\nresources: {gpu_memory: 'x; y'}\n")
    output = headgate(*shlex.split(arguments), "-o", "json")
    for problem in output.error["problems"]:
        assert "; " in problem["problem"] + problem["path"]
        assert "; " not in problem["hint"]


def test_an_output_file_given_as_the_format_is_explained(headgate: Any) -> None:
    for arguments in (("-o", "result.npz"), ("-oresult.npz",), ("--format=result.npz",)):
        output = headgate("get", "job-1", *arguments)
        assert output.code == 2
        assert "--output FILE" in output.err
    assert "--output" not in headgate("jobs", "-o", "x").err


def test_a_removed_working_directory_is_reported_without_a_traceback(
    headgate: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for arguments in (("jobs",), ("submit", "job.yaml"), ("jobs", "-o", "json")):
        output = headgate(*arguments)
        assert (output.code, len(output.err.splitlines())) == (1, 1)
        assert "No such file or directory" in output.err
