"""Large files: work proportional to the size, and errors of bounded length."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from headgate.base.errors import MOST_PROBLEMS, SpecError
from headgate.spec import expand, load_job, load_scenario


def rejection(text: str) -> SpecError:
    with pytest.raises(SpecError) as found:
        load_job(text)
    return found.value


def work_of(function: Callable[[], object]) -> int:
    """Return how many instructions of Python a call takes."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


WRONG = {
    "unknown keys": lambda n: "".join(f"key{i}: 1\n" for i in range(n)),
    "unknown keys of a stage": lambda n: (
        "tasks:\n  run: x\n  count: 1\n" + "".join(f"  key{i}: 1\n" for i in range(n))
    ),
    "data without a source": lambda n: (
        "data:\n" + "".join(f"  d{i}: {{}}\n" for i in range(n)) + "tasks: {run: x, count: 1}\n"
    ),
    "unknown data": lambda n: (
        f"data: {{{', '.join(f'd{i}: {{from: d}}' for i in range(n))}}}\n"
        f"tasks: {{run: x, for_each: [{', '.join(f'x{i}' for i in range(n))}]}}\n"
    ),
    "numbers for files": lambda n: f"data: {{d: {{files: [{'1, ' * n}]}}}}\n",
    "no variables": lambda n: "run: x\nenvs:\n" + "".join(f"  {i}-: x\n" for i in range(n)),
    "the same key": lambda n: "name: x\n" * n,
}


@pytest.mark.parametrize("case", WRONG)
def test_work_is_proportional_to_the_number_of_problems(case: str) -> None:
    few, many = (WRONG[case](n) for n in (150, 450))
    rejection(few)  # what is done once, is done
    assert work_of(lambda: rejection(many)) < 4 * work_of(lambda: rejection(few))


@pytest.mark.parametrize("case", WRONG)
def test_the_first_problems_are_reported_and_the_rest_counted(case: str) -> None:
    problems = rejection(WRONG[case](3000)).problems
    assert len(problems) == MOST_PROBLEMS
    assert problems[-1].problem.startswith("and ")
    assert problems[-1].problem.endswith(" more problems")
    lines = [p.line for p in problems[:-1] if p.line is not None]
    assert lines == sorted(lines)


def test_how_many_more_there_are_is_exact() -> None:
    problems = rejection("run: x\n" + "".join(f"key{i}: 1\n" for i in range(250))).problems
    assert [p.path for p in problems[:-1]] == [f"key{i}" for i in range(MOST_PROBLEMS - 1)]
    assert problems[-1].problem == f"and {250 - (MOST_PROBLEMS - 1)} more problems"
    exactly = rejection("run: x\n" + "".join(f"k{i}: 1\n" for i in range(MOST_PROBLEMS))).problems
    assert [p.path for p in exactly] == [f"k{i}" for i in range(MOST_PROBLEMS)]


WRONG_SCENARIOS = {
    "unknown queues": lambda n: (
        f"queues: [{', '.join(f'{{name: a-long-name-{i}}}' for i in range(n))}]\njobs:\n"
        + "".join(f"- {{name: j{i}, queue: q{i}, tasks: [{{compute_s: 1}}]}}\n" for i in range(n))
    ),
    "unknown nodes of shards": lambda n: (
        "jobs:\n- name: j\n  tasks:\n  - compute_s: 1\n    shards:\n"
        + "".join(f"    - {{size_bytes: 1, replicas: [n{i}]}}\n" for i in range(n))
    ),
    "unknown nodes of one shard": lambda n: (
        "jobs: [{name: j, tasks: [{compute_s: 1, shards: [{size_bytes: 1, replicas: "
        f"[{', '.join(f'n{i}' for i in range(n))}]}}]}}]}}]\n"
    ),
    "unknown tasks": lambda n: (
        "jobs:\n- name: j\n  tasks:\n"
        + "".join(f"  - {{compute_s: 1, name: a-long-name-{i}, after: [t{i}]}}\n" for i in range(n))
    ),
    "unknown nodes of faults": lambda n: (
        "jobs: [{name: j, tasks: [{compute_s: 1}]}]\nfaults:\n"
        + "".join(f"- {{at_s: 1, lose: n{i}}}\n" for i in range(n))
    ),
}


@pytest.mark.parametrize("case", WRONG_SCENARIOS)
def test_work_is_proportional_to_the_problems_of_a_scenario(case: str, tmp_path: Path) -> None:
    def reject(count: int) -> None:
        file = tmp_path / "scenario.yaml"
        rack = f"{{name: a-long-name, nodes: {count}, node: {{gpus: 1, gpu_memory: 1GiB}}}}"
        rates = ("disk_bytes_per_s", "node_link_bytes_per_s", "rack_uplink_bytes_per_s")
        bandwidths = ", ".join(f"{name}: 1e8" for name in rates)
        head = f"cluster: {{racks: [{rack}], bandwidths: {{{bandwidths}}}}}\npolicy: fifo\n"
        file.write_text(head + WRONG_SCENARIOS[case](count))
        with pytest.raises(SpecError, match="unknown"):
            load_scenario(file, {"fifo": ()})

    reject(150)  # what is done once, is done
    assert work_of(lambda: reject(450)) < 4 * work_of(lambda: reject(150))


LONG = "x" * 100_000


@pytest.mark.parametrize(
    "text",
    [
        f"? {LONG}\n: 1\n",
        f"? {LONG}\n: 1\n? {LONG}\n: 2\n",
        f"run: x\nqueue: {LONG}\n",
        f"run: !{LONG} x\n",
        f"run: *{LONG}\n",
        f"run: x\nresources: {{gpu_memory: {LONG}}}\n",
        f"run: x\nresources: {{gpu_memory: -{LONG}}}\n",
        f"run: x\nenvs: {{? {LONG}- : x}}\n",
        f"tasks: {{run: x, for_each: {LONG}}}\n",
        f"tasks: {{run: x, count: 1, params: {{? {LONG} : .nan}}}}\n",
        f"run: x\npriority: 0x{'f' * 100_000}\n",
        f"run: x\npriority: {'9' * 100_000}\n",
    ],
)
def test_a_long_text_is_shortened_in_messages(text: str) -> None:
    assert len(str(rejection(text))) < 2000


def test_a_missing_file_with_a_long_name_is_named_in_short() -> None:
    job = load_job(f"data: {{d: {{files: [/{LONG}]}}}}\ntasks: {{run: x, for_each: d}}\n")
    with pytest.raises(SpecError, match="there is no file") as found:
        expand(job, job_id="j", user="u", datasets={}, file_sizes={})
    assert len(str(found.value)) < 2000


def test_number_with_too_many_digits_is_rejected() -> None:
    text = "tasks: {run: 'a:b', count: 1, params: {n: 0x" + "f" * 5000 + "}}"
    assert "is not a value that can be used (tag int)" in str(rejection(text))


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_deep_nesting_of_any_form_is_rejected(opening: str) -> None:
    assert "is nested too deeply" in str(rejection("a:\n  " + opening * 200_000))


def test_nesting_through_aliases_is_rejected() -> None:
    lines = ["a0: &a0 [1]\n", *(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 200))]
    assert "is nested too deeply" in str(rejection("".join(lines)))


def test_values_behind_aliases_are_counted_before_they_are_built() -> None:
    bomb = "a0: &a0 [" + "1, " * 9 + "]\n"
    bomb += "".join(f"a{i}: &a{i} [{f'*a{i - 1}, ' * 9}]\n" for i in range(1, 30))
    assert "use fewer aliases" in str(rejection(bomb))
    assert work_of(lambda: rejection(bomb)) < 1_000_000


def test_hints_are_computed_only_for_the_problems_shown() -> None:
    def refusal(count: int) -> None:
        names = [f"d{i}" for i in range(count)]
        data = ", ".join(f"{name}: {{from: x{name}}}" for name in names)
        job = load_job(f"data: {{{data}}}\ntasks: {{run: x, for_each: [{', '.join(names)}]}}\n")
        with pytest.raises(SpecError):
            expand(job, job_id="j", user="u", datasets={"xd0y": ()}, file_sizes={})

    refusal(150)
    assert work_of(lambda: refusal(450)) < 4 * work_of(lambda: refusal(150))
