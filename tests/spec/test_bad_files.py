"""Invalid files are rejected with every problem, its place, its line and a hint."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.base.errors import SpecError
from headgate.model import Shard
from headgate.spec import expand, load_job, load_scenario

POLICIES = {"fs": ["alpha1", "alpha2", "alpha3"], "fifo": []}

HEAD = """\
cluster:
  racks:
    - name: r
      nodes:
        - {name: node1, gpus: 1, gpu_memory: 10GB}
        - {name: node2, gpus: 2, gpu_memory: 16GB, cpus: 2}
  bandwidths: {disk_bytes_per_s: 9e8, node_link_bytes_per_s: 1e8, rack_uplink_bytes_per_s: 1e8}
policy: fs
"""


def cases(table: str) -> dict[str, tuple[str, list[str]]]:
    """Return, by case, a file's text and the problems expected of it."""
    found = {}
    for part in Path(__file__).with_name(table).read_text().split("\n=== ")[1:]:
        case, _, rest = part.partition("\n")
        text, _, problems = rest.partition("---\n")
        found[case] = (text.replace("@head\n", HEAD), problems.strip().split("\n"))
    return found


BAD_SCENARIOS = cases("bad-scenarios.txt")
BAD_JOBS = cases("bad-jobs.txt")
DATASETS = {
    "my-ints": (Shard(id="my-ints/0", size_bytes=1),) * 3,
    "words": (Shard(id="words/0", size_bytes=1),) * 2,
    "nothing": (),
}


def problems_of(file: Path) -> list[str]:
    with pytest.raises(SpecError) as refused:
        load_scenario(file, POLICIES)
    return [str(problem) for problem in refused.value.problems]


@pytest.mark.parametrize("case", BAD_JOBS)
def test_bad_job(case: str) -> None:
    text, expected = BAD_JOBS[case]
    with pytest.raises(SpecError) as refused:
        expand(load_job(text), job_id="j", user="u", datasets=DATASETS, file_sizes={})
    assert [str(problem) for problem in refused.value.problems] == expected


@pytest.mark.parametrize("case", BAD_SCENARIOS)
def test_bad_scenario(case: str, tmp_path: Path) -> None:
    text, expected = BAD_SCENARIOS[case]
    file = tmp_path / "scenario.yaml"
    file.write_text(text)
    assert problems_of(file) == expected


NOT_YAML = {
    "a bracket left open": (
        b"jobs: [1, 2\nseed: 1\n",
        " (line 2): is not YAML: did not find expected ',' or ']'; column 5",
    ),
    "a tab": (
        b"jobs:\n\t- 1\n",
        " (line 2): is not YAML: found character '\\t' that cannot start any token; column 1",
    ),
    "two documents": (
        b"a: 1\n---\nb: 1\n",
        " (line 2): is not YAML: but found another document; column 1",
    ),
    "nothing": (b"", ": is empty"),
    "nothing but a comment": (b"# to do\n", ": is empty"),
    "a list": (
        b"- 1\n",
        " (line 1): must be a mapping of keys to values; begin with a line such as ",
    ),
    "binary garbage": (b"\x7fELF\xff\xfe\x00\x01", ": is not text; a YAML file in UTF-8 is needed"),
    "zeros": (b"\0" * 100, ": contains a character that is invalid in text: 0"),
    "deep nesting": (b"a: " + b"[" * 5000, ": is nested too deeply"),
    "aliases that explode": (
        b"a: &a [1,1,1,1,1,1,1,1]\n"
        + b"".join(
            b"%c: &%c [%s]\n" % (c, c, b",".join([b"*%c" % (c - 1)] * 8)) for c in b"bcdefgh"
        ),
        ": unfolds to more than 2000000 values; use fewer aliases",
    ),
    "an alias of itself": (b"a: &a [*a]\n", ": is nested too deeply"),
}


@pytest.mark.parametrize("case", NOT_YAML)
def test_text_that_is_not_yaml_is_rejected(case: str, tmp_path: Path) -> None:
    content, expected = NOT_YAML[case]
    file = tmp_path / "scenario.yaml"
    file.write_bytes(content)
    (problem,) = problems_of(file)
    assert problem.startswith(f"{file}{expected}")


def test_path_that_is_no_file_is_rejected(tmp_path: Path) -> None:
    missing = tmp_path / "missing.yaml"
    assert problems_of(missing) == [f"{missing}: there is no such file"]
    assert problems_of(tmp_path) == [f"{tmp_path}: is a directory, not a file"]
    assert problems_of(Path("a\0b")) == ["a\0b: cannot be read: embedded null byte"]


def test_unsupported_yaml_values_are_rejected(tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text("seed: !!int x\ncluster: !python/none {}\n? [a]\n: 1\npolicy: !!binary aGk=\n")
    found = problems_of(file)
    assert "seed (line 1): is not a value that can be used (tag int)" in found
    assert "cluster (line 2): is not a value that can be used (tag !python/none)" in found
    assert any("a key must be text" in problem for problem in found)


# Whatever is done to a good file, what comes out is a value or a SpecError.

ROOT = Path(__file__).parents[2]
PAGE = [
    yaml.safe_load(part.split("```")[0])
    for part in (ROOT / "docs" / "scenario-file.md").read_text().split("```yaml")[1:]
]
GOOD = [
    yaml.safe_load((ROOT / "examples" / "three-tasks.yaml").read_text())
    | {
        "queues": [{"name": "q", "weight": 2, "max_gpus": 4}],
        "faults": [{"at_s": 5, "lose": "node1"}, {"at_s": 9, "join": "node1"}],
        "policy": {"name": "fs", "alpha1": 2.0},
    },
    *(PAGE[0] | part for part in PAGE if "jobs" in part),
]
GOOD_JOBS = [
    yaml.safe_load(part.split("```")[0])
    for part in (ROOT / "docs" / "job-file.md").read_text().split("```yaml")[1:]
]
JUNK = st.sampled_from(
    [None, True, -1, 0, 1, 2**70, 10**400, 1.5, float("nan"), float("inf"), "", "node1", "-5MB",
     "1e999", "\udc80", "a b", "{shard}", [], [[]], [1], {}, {"name": 1}, {"a": {}}]
)  # fmt: skip


def containers(data: Any) -> list[Any]:
    """Return everything inside some data that holds other things, and the data itself."""
    inside = data.values() if isinstance(data, dict) else data
    return [data, *(c for i in inside if isinstance(i, dict | list) for c in containers(i))]


@st.composite
def mutated(draw: st.DrawFn, originals: list[Any]) -> Any:
    data = copy.deepcopy(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 4))):
        target = draw(st.sampled_from(containers(data)))
        keys = list(target) if isinstance(target, dict) else list(range(len(target)))
        if not keys:
            continue
        key = draw(st.sampled_from(keys))
        match draw(st.sampled_from(["replace", "drop", "rename", "double"])):
            case "replace":
                target[key] = copy.deepcopy(draw(JUNK))
            case "drop":
                del target[key]
            case "rename" if isinstance(target, dict):
                target[f"{key}x"] = target.pop(key)
            case "double" if isinstance(target, list):
                target.append(target[key])
    return data


def check(error: SpecError) -> None:
    """An error says something, and it can be printed."""
    assert str(error).encode()


@settings(max_examples=300)
@given(mutated(GOOD))
def test_a_mutated_scenario_is_a_value_or_a_spec_error(
    tmp_path_factory: pytest.TempPathFactory, data: Any
) -> None:
    file = tmp_path_factory.getbasetemp() / "mutated.yaml"
    file.write_text(yaml.safe_dump(data, allow_unicode=False), encoding="utf-8")
    try:
        load_scenario(file, POLICIES)
    except SpecError as error:
        check(error)


@settings(max_examples=200)
@given(mutated(GOOD_JOBS))
def test_a_mutated_job_is_a_value_or_a_spec_error(data: Any) -> None:
    try:
        load_job(yaml.safe_dump(data, allow_unicode=False))
    except SpecError as error:
        check(error)


@settings(max_examples=200)
@given(st.integers(0, 1200), st.sampled_from(list("{}[]:&*!|>%@`'\"#-?,\n\t\0\x85é")))
def test_one_character_more_is_a_value_or_a_spec_error(
    tmp_path_factory: pytest.TempPathFactory, at: int, character: str
) -> None:
    text = (ROOT / "examples" / "three-tasks.yaml").read_text()
    file = tmp_path_factory.getbasetemp() / "edited.yaml"
    file.write_text(text[:at] + character + text[at:], encoding="utf-8")
    try:
        load_scenario(file, POLICIES)
    except SpecError as error:
        check(error)
