"""The laws of placers on random clusters, for each of them, and for what packs without one."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from functools import cache

import pytest
from tests.planning.place.placers import PLACERS, SETTINGS

from headgate.machine import apply
from headgate.model import Queue
from headgate.planning.place.choose.compact import Compact
from headgate.planning.place.choose.packed import Packed
from headgate.planning.place.placement import fit, never
from headgate.planning.place.placing import Placing
from headgate.planning.place.timetable import Timetable
from headgate.planning.units.unit import FirstFit, Unit, waiting_units
from headgate.ports import PLACES
from headgate.protocol import Start, TopologyChanged
from headgate.state import Scratch, Snapshot
from headgate.testing.policy_laws import IndependentLedger
from headgate.testing.random_queues import QUEUES
from headgate.testing.random_worlds import linked, random_state, random_topology

Place = Callable[[Unit], bool]
"""Starts a unit on a scratch, or returns False."""


def by_chooser(chooser: type[Compact] | type[Packed]) -> Callable[[Scratch], Place]:
    """Return what places units on a timetable, of which all is used that is free now."""

    def make(scratch: Scratch) -> Place:
        table = Timetable(scratch, never)
        placing = Placing(table, chooser(table))
        return lambda unit: placing.start(unit, math.inf)

    return make


WAYS: dict[str, Callable[[Scratch], Place]] = {
    "roomiest nodes": by_chooser(Compact),
    "packed": by_chooser(Packed),
    **{
        ", ".join(setting.values()): lambda scratch, placer=placer: fit(scratch, placer).place
        for setting, placer in zip(SETTINGS, PLACERS, strict=True)
    },
}
MAY_WAIT = {
    ", ".join(setting.values())
    for setting, placer in zip(SETTINGS, PLACERS, strict=True)
    if placer.may_wait
}
EVERY = pytest.mark.parametrize("way", WAYS)
SEEDS = range(40)


@cache
def snapshot_of(seed: int) -> Snapshot:
    """Return a random snapshot with a topology, of queues without ceilings."""
    state = random_state(seed, every_kind=True)
    for queue in QUEUES:
        state.set_queue(Queue(name=queue))
    state.names.jobs[:] = [linked(job) for job in state.names.jobs]
    apply(state, TopologyChanged(at=state.now, topology=random_topology(seed, 6)))
    return state.freeze()


def units_of(snapshot: Snapshot) -> list[Unit]:
    """Return all units that wait, in order of arrival."""
    return [
        unit
        for job in snapshot.waiting_jobs()
        for units in waiting_units(snapshot, job)
        for unit in units
    ]


def placed(way: str, snapshot: Snapshot) -> list[Start]:
    """Place all units of a snapshot in turn; return the starts."""
    scratch = Scratch(snapshot)
    place = WAYS[way](scratch)
    for unit in units_of(snapshot):
        place(unit)
    return [*scratch.starts]


@EVERY
def test_unit_starts_whole_within_what_is_free_or_nothing_changes(way: str) -> None:
    waited = 0
    for seed in SEEDS:
        snapshot = snapshot_of(seed)
        scratch, ledger = Scratch(snapshot), IndependentLedger(snapshot)
        place = WAYS[way](scratch)
        for unit in units_of(snapshot):
            before, memos = len(scratch.starts), repr(scratch.node_memos())
            starts = place(unit)
            new = scratch.starts[before:]
            assert [fault for each in new if (fault := ledger.take(each))] == [], seed
            assert sorted(each.task for each in new) == (sorted(unit.tasks) if starts else [])
            if unit.distinct_nodes:
                assert len({each.node for each in new}) == len(new), seed
            if not starts:
                waited += 1
                assert repr(scratch.node_memos()) == memos, seed
    assert waited > 10


@EVERY
def test_unit_starts_wherever_it_starts_by_first_fit(way: str) -> None:
    """Unless the placer lets it wait for a better place, which an idle cluster has."""
    started = 0
    for seed in SEEDS:
        snapshot = snapshot_of(seed)
        for unit in units_of(snapshot):
            if FirstFit(Scratch(snapshot)).place(unit):
                starts = WAYS[way](Scratch(snapshot))(unit)
                assert starts or way in MAY_WAIT, (seed, unit)
                started += starts
    assert started > 40


def test_equal_snapshots_get_equal_places() -> None:
    for seed in SEEDS:
        snapshot = snapshot_of(seed)
        copy = pickle.loads(pickle.dumps(snapshot))
        for way in WAYS:
            assert placed(way, snapshot) == placed(way, copy), (seed, way)


def test_every_placer_is_under_the_laws() -> None:
    assert {setting["place"] for setting in SETTINGS} == {*PLACES} - {"first-fit"}
