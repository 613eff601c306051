"""Names of jobs that are made of one command."""

from __future__ import annotations

import pytest

from headgate.api.programs import job_of_command


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "train.py", "--lr", "1"], "train"),
        (["./train.sh"], "train"),
        (["/usr/bin/nvidia-smi", "-L"], "nvidia-smi"),
        (["python", "-c", "print(1)"], "python"),
        ("make all && echo done", "make"),
        (["???"], "run"),
    ],
)
def test_command_names_its_job_by_its_script_or_program(
    command: str | list[str], name: str
) -> None:
    assert job_of_command(command)["name"] == name
    assert job_of_command(command, name="mine")["name"] == "mine"
