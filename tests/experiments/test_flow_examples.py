"""The example scenarios of the flow paper equal its experiments in all tasks and replicas."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headgate.experiments.flow.jobs import SimulatorConstants, by_users, in_parallel
from headgate.model import Job
from headgate.sim.run import Simulation
from headgate.spec import Scenario, load_scenario

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str, seed: int | None = None) -> Scenario:
    return load_scenario(EXAMPLES / f"flow-paper-{name}.yaml", {"fs": []}, seed=seed)


def own(job: Job) -> Job:
    """Return a user's job with data of its own: every shard and result has the job's name."""

    def named(read: str) -> str:
        return job.id + "/" + read.partition("/")[2]

    return replace(
        job,
        shards=tuple(replace(shard, id=named(shard.id)) for shard in job.shards),
        tasks=tuple(replace(t, reads=tuple(map(named, t.reads))) for t in job.tasks),
    )


def same_cluster(file: Scenario, made: Simulation) -> bool:
    return (file.nodes, file.links, file.bandwidth) == (made.nodes, made.links, made.bandwidth)


@pytest.mark.parametrize("seed", [None, 5])
@pytest.mark.parametrize("network", ["constrained", "unconstrained"])
def test_scenario_of_jobs_in_parallel_equals_the_experiment(network: str, seed: int | None) -> None:
    file = example(network, seed)
    made = in_parallel(network, seed or 1, SimulatorConstants(), parallel=6)

    assert file.seed == made.seed
    assert same_cluster(file, made)
    assert file.queues == made.queues
    assert [job.id for _, job in file.submissions] == [f"J{n}" for n in range(1, 37)]
    for (at, job), (expected_at, expected) in zip(file.submissions, made.submissions, strict=True):
        assert at == expected_at
        assert job == expected
    assert sorted((s.id, node) for s, node in file.replicas) == sorted(
        (s.id, node) for s, node in made.replicas
    )


def test_scenario_of_users_equals_the_experiment() -> None:
    file, made = example("users"), by_users("constrained", 1, SimulatorConstants())

    assert same_cluster(file, made)
    assert [queue for queue in file.queues if queue.name != "default"] == list(made.queues)
    assert [job for _, job in file.submissions] == [own(job) for _, job in made.submissions]
    places = {shard.id: 0 for _, job in file.submissions for shard in job.shards}
    for shard, _ in file.replicas:
        places[shard.id] += 1
    assert set(places.values()) == {3}
