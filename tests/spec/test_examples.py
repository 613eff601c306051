"""Every YAML example of the documentation, and every file in examples/, is valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from headgate.model import Bandwidth
from headgate.spec import load_job, load_scenario

ROOT = Path(__file__).parents[2]
POLICIES = {
    "fs": ["alpha1", "alpha2", "alpha3"], "headgate": [], "fifo": ["place"],
    "fair-easy-backfill": [],
}  # fmt: skip
PARTS = {"fair-easy-backfill": {"order": "fair", "place": "first-fit", "backfill": "easy"}}


def blocks(page: str) -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


SCENARIOS = blocks("docs/scenario-file.md")
JOBS = [*blocks("docs/job-file.md"), *blocks("docs/ray-programs.md")]


@pytest.mark.parametrize("number", range(len(SCENARIOS)))
def test_scenarios_of_the_documentation_load(number: int, tmp_path: Path) -> None:
    """The first example is whole; each of the others replaces some of its keys."""
    data = yaml.safe_load(SCENARIOS[0]) | yaml.safe_load(SCENARIOS[number])
    file = tmp_path / "scenario.yaml"
    file.write_text(SCENARIOS[0] if number == 0 else yaml.safe_dump(data))
    assert load_scenario(file, POLICIES, parts=PARTS).submissions


@pytest.mark.parametrize("text", JOBS)
def test_jobs_of_the_documentation_load(text: str) -> None:
    assert load_job(text)


@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda f: f.name)
def test_examples_load(file: Path) -> None:
    if "cluster" in yaml.safe_load(file.read_text()):
        assert load_scenario(file, POLICIES)
    else:
        assert load_job(file)


def test_every_key_of_the_models_is_documented() -> None:
    from headgate.spec import cluster, job_file, scenario, scenario_forms, scenario_jobs
    from headgate.spec.shape import FileShape

    for page, modules in (
        ("docs/scenario-file.md", (cluster, scenario, scenario_forms, scenario_jobs)),
        ("docs/job-file.md", (job_file,)),
    ):
        text = (ROOT / page).read_text()
        for module in modules:
            for shape in vars(module).values():
                if isinstance(shape, type) and issubclass(shape, FileShape):
                    for name, field in shape.model_fields.items():
                        assert re.search(rf"\b{field.alias or name}\b", text), (page, shape, name)


def test_three_tasks_example_matches_the_document() -> None:
    scenario = load_scenario(ROOT / "examples" / "three-tasks.yaml", POLICIES)
    assert [(node.id, len(node.gpus)) for node in scenario.nodes] == [("node1", 1), ("node2", 1)]
    assert scenario.task_names == {"job1": ("task11", "task12"), "job2": ("task21",)}
    places = {}
    for shard, node in scenario.replicas:
        places.setdefault(shard.id, []).append(node)
    names = {
        name: places[task.reads[0]]
        for _, job in scenario.submissions
        for name, task in zip(scenario.task_names[job.id], job.tasks, strict=True)
    }
    assert names == {"task11": ["node1", "node2"], "task12": ["node2"], "task21": ["node2"]}
    assert scenario.bandwidth == Bandwidth(
        disk_bytes_per_s=100e6, rack_bytes_per_s=50e6, cluster_bytes_per_s=25e6
    )
    assert (scenario.policy, scenario.seed, scenario.trace) == ("fs", 1, None)
