"""Storms with all parts together: all laws hold, and every part occurs."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.sim.weather import LateStops, Watch, ends_all, named, ride

from headgate.app import POLICIES
from headgate.ports import make_policy
from headgate.protocol import (
    FailureKind,
    GpusWithheld,
    JobSubmitted,
    MoveRequested,
    NodeDraining,
    PlanAdmitted,
    ScalingChanged,
    SlotsWithdrawn,
    TaskFailed,
    TopologyChanged,
)
from headgate.sim.world import SimulatedWorld
from headgate.testing.every_part import every_part

SEEDS = (8, 11, 12, 14, 16, 20, 22, 23)
"""Storms in which, under any of the policies, each part occurs."""
PARTS = {
    "gangs", "parts of GPUs", "memory", "custom", "models", "leases", "communication", "limits",
    "topologies", "catalogues", "orders", "removals", "drains", "withheld", "moves requested",
    "moves", "reclaimed", "withdrawn", "timed out", "elastic", "surplus", "training", "widths",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("fifo", SimulatedWorld),
        ("headgate", SimulatedWorld),
        ("headgate", LateStops),
        ("gsp", LateStops),
        ("conservative-backfill", LateStops),
        ("fair", SimulatedWorld),
    ],
)
def test_storm_of_every_part_keeps_all_laws(name: str, kind: type[SimulatedWorld]) -> None:
    """`ride` checks the state after every batch, and that a replay gives the same state."""
    found = Counter[str]()
    for seed in SEEDS:
        with named(f"storm({seed}) of every part under {name}"):
            policy = make_policy(POLICIES, name)
            watch = ride(seed, policy, calm=seed % 3 == 2, kind=kind, change=every_part)
            assert ends_all(watch.engine, held_back=True)
        found += parts(watch)
    assert {*found} == PARTS


def test_unit_with_a_reservation_for_which_others_are_preempted_starts_once() -> None:
    """In this storm, units are preempted for one that has a reservation already."""
    with named("storm(2) of every part under headgate"):
        policy = make_policy(POLICIES, "headgate")
        watch = ride(2, policy, calm=True, change=every_part)
        assert ends_all(watch.engine, held_back=True)


def parts(watch: Watch) -> Counter[str]:
    """Return how often each part occurred in a storm."""
    found = Counter({"moves": int(watch.engine.state.jobs.migrations.array().sum())})
    for event in (event for batch in watch.batches for event in batch):
        match event:
            case JobSubmitted(job=job):
                found["gangs"] += job.gang
                found["parts of GPUs"] += any(task.demand.in_part for task in job.tasks)
                found["memory"] += any(task.demand.memory_bytes > 0 for task in job.tasks)
                found["custom"] += any(task.demand.custom != () for task in job.tasks)
                found["models"] += any(task.demand.gpu_models != () for task in job.tasks)
                found["leases"] += job.items is not None
                found["elastic"] += job.elastic is not None
                found["training"] += job.training is not None
                found["communication"] += job.communication is not None
                found["limits"] += job.time_limit_s is not None
            case PlanAdmitted():
                found["orders"] += len(event.orders)
                found["removals"] += len(event.drains)
                found["reclaimed"] += sum("reclaimed" in stop.reason for stop in event.stops)
                found["widths"] += len(event.widths)
                found["surplus"] += sum("surplus" in stop.reason for stop in event.stops)
            case TaskFailed(kind=failure):
                found["timed out"] += failure is FailureKind.TIMED_OUT
            case _:
                found[_OTHERS.get(type(event), "")] += type(event) in _OTHERS
    return +found


_OTHERS: dict[type, str] = {
    TopologyChanged: "topologies",
    ScalingChanged: "catalogues",
    NodeDraining: "drains",
    GpusWithheld: "withheld",
    MoveRequested: "moves requested",
    SlotsWithdrawn: "withdrawn",
}
