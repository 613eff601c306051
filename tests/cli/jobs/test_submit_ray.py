"""Plain Ray programs on the command line: `submit --ray`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headgate.api.programs import job_of_ray_script
from headgate.model import Demand


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "my train.py"
    path.write_text("import ray\n")
    return path


def test_script_becomes_a_job_with_its_arguments(up: Any, script: Path, controller: Any) -> None:
    output = up(
        *("submit", "--ray", script.name, "--gpus", "2", "--cpus", "4", "--memory", "1GiB"),
        *("--num-nodes", "1", "-o", "json", "--", "--epochs", "3"),
    )
    assert output.code == 0, output.err
    assert output.json["state"] in ("active", "queued", "finished")
    job = controller.engine.state.job(0)
    assert job.name == "my-train"
    assert job.program.stages[0].run == str(script)
    assert job.program.ray.args == ("--epochs", "3")
    demand = Demand(gpus=2, cpus_milli=4000, memory_bytes=1 << 30)
    assert [task.demand for task in job.tasks] == [demand]


def test_job_file_of_a_script_names_only_what_is_given(script: Path) -> None:
    assert job_of_ray_script(script) == {
        "name": "my-train",
        "ray": {"script": str(script), "args": []},
    }


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--ray", "none.py"), "error: none.py: there is no such file"),
        (("--ray", "."), "error: .: is not a file"),
        (("--ray", "my train.py", "--memory", "1xB"), "'1xB' is not a size"),
        (("--ray", "my train.py", "--gpus", "4", "--cpus", "2"), "at least one for each GPU"),
        (("a.yaml", "b.yaml"), "error: FILE: 2 are given, and one is submitted"),
        ((), "error: FILE: is missing"),
    ],
)
def test_invalid_command_line_is_a_usage_error(
    up: Any, script: Path, arguments: tuple[str, ...], problem: str
) -> None:
    assert script.exists()
    output = up("submit", *arguments)
    assert (output.code, output.out) == (2, "")
    assert problem in output.err
