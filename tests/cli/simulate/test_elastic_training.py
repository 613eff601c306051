"""`headgate simulate --deadlines`: figures, and options that do not fit together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headgate.planning.deadlines import ALLOCATORS

EXAMPLES = Path(__file__).parents[3] / "examples"
TRACE = str(EXAMPLES / "elasticflow-195.parquet")
CALL = (
    "simulate", "--deadlines", "--trace", TRACE, "--gpu-type", "T4", "--servers", "16",
    "--gpus-per-server", "4",
)  # fmt: skip
FIGURES = {
    "policy", "rules", "gpus", "jobs", "deadline_ratio", "deadline_bound", "accepted",
    "rejected_at_admission", "rejected", "rejected_in_time", "promises_broken", "resizes",
    "gpu_utilisation", "makespan_s", "decisions", "decision_cpu_s",
}  # fmt: skip


def figures(headgate: Any, *arguments: str) -> dict[str, Any]:
    done = headgate(*CALL, *arguments, "-o", "json")
    assert (done.code, done.err) == (0, "")
    found: dict[str, Any] = done.json
    return found


@pytest.mark.parametrize("policy", ALLOCATORS)
def test_every_allocator_has_all_figures(headgate: Any, policy: str) -> None:
    found = figures(headgate, "--policy", policy, "--vc", "elasticVpollux_e")
    assert set(found) == FIGURES
    assert (found["policy"], found["rules"], found["gpus"]) == (policy, "elasticflow", 64)
    assert found["jobs"] == found["accepted"] + found["rejected_at_admission"] == 195
    assert found["rejected_at_admission"] == sum(found["rejected"].values())
    again = figures(headgate, "--policy", policy)
    assert {**found, "decision_cpu_s": 0} == {**again, "decision_cpu_s": 0}


def test_rules_can_be_plain(headgate: Any) -> None:
    found = figures(headgate, "--policy", "elasticflow", "--rules", "plain")
    assert found["rules"] == "plain"
    assert found["deadline_ratio"] > figures(headgate, "--policy", "elasticflow")["deadline_ratio"]


def test_the_figures_are_a_table_for_people(headgate: Any) -> None:
    done = headgate(*CALL, "--policy", "edf")
    assert (done.code, done.err) == (0, "")
    lines = [line.split() for line in done.out.splitlines()]
    assert ["in", "time", "11.8%"] in lines
    assert ["in", "time", "if", "alone", "92.8%"] in lines


@pytest.mark.parametrize(
    ("arguments", "paths"),
    [
        (
            ["--deadlines"],
            ["--trace", "--gpu-type", "--gpus", "--policy"],
        ),
        ([*CALL[1:], "--policy", "fifo"], ["--policy"]),
        ([*CALL[1:], "--policy", "edf", "--rules", "ours"], ["--rules"]),
        ([*CALL[1:], "--policy", "edf", "--gpus", "64"], ["--gpus"]),
        ([*CALL[1:], "--policy", "edf", "--seed", "1", "--resume", "5"], ["--seed", "--resume"]),
        (["--trace", TRACE, "--policy", "fifo", "--servers", "4"], ["--gpus-per-server"]),
        (
            ["--trace", TRACE, "--policy", "fifo", "--servers", "0", "--gpus-per-server", "4"],
            ["--servers"],
        ),
        (
            ["--trace", TRACE, "--gpus", "4", "--policy", "fifo", "--gpu-type", "T4"],
            ["--gpu-type"],
        ),
    ],
)
def test_all_that_does_not_fit_is_named(
    headgate: Any, arguments: list[str], paths: list[str]
) -> None:
    done = headgate("simulate", *arguments)
    assert done.code == 2
    named = [
        line.removeprefix("error: ").partition(": ")[0]
        for line in done.err.splitlines()
        if line.startswith("error: ")
    ]
    assert named == paths


def test_servers_are_gpus_of_any_trace(headgate: Any) -> None:
    trace = str(EXAMPLES / "philly-500.parquet")
    call = ("simulate", "--trace", trace, "--policy", "fifo", "-o", "json")
    by_servers = headgate(*call, "--servers", "16", "--gpus-per-server", "8")
    assert by_servers.code == 0
    assert by_servers.json == headgate(*call, "--gpus", "128").json


def test_a_gpu_type_without_throughputs_is_named(headgate: Any) -> None:
    done = headgate(*CALL[:6], "--gpu-type", "H100", "--gpus", "8", "--policy", "edf")
    assert done.code != 0
    assert "gpu_type: no row has 'H100'" in done.err
