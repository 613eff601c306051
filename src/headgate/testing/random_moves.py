"""A policy for tests: another one, whose running tasks and gangs also move at random."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headgate.base.rng import Random
from headgate.model import Job
from headgate.planning.moves.migration import moved_for
from headgate.ports import Policy
from headgate.protocol import Group, Move, Plan, Reason, Steps
from headgate.state import JobState, Scratch, Snapshot
from headgate.state.life import EXECUTING
from headgate.state.moves import stays, unit_of


class RandomMoves(Policy):
    """Moves units to resources that the plan of another policy leaves free."""

    name = "random moves"

    def __init__(self, policy: Policy, *, chance: float = 0.5) -> None:
        """Each unit that runs moves with this `chance` in each round, if there is room."""
        self._policy, self._chance = policy, chance

    def refuses(self, job: Job) -> Reason | None:
        """Return what the other policy says."""
        return self._policy.refuses(job)

    def decide(self, snapshot: Snapshot, rng: Random) -> Plan:
        """Return the plan of the other policy, with moves in groups of their own."""
        plan = self._policy.decide(snapshot, rng)
        scratch = Scratch(snapshot)
        for task, node, gpus in plan.starts:
            assert scratch.place(task, node, gpus), "the policy plans what fits"
        stopped = set(plan.stops.task.tolist())
        groups = []
        for unit in _units(snapshot):
            if rng.random() >= self._chance or stopped & set(unit):
                continue
            moves = self._moves(scratch, unit, rng)
            if moves:
                reason = moved_for(snapshot, snapshot.tasks.job[unit.start])
                groups.append(Group(tuple(moves), reason))
        return replace(plan, steps=plan.steps + Steps.of(groups))

    def _moves(self, scratch: Scratch, unit: range, rng: Random) -> list[Move]:
        """Return moves of a unit, of which some members may stay; none where one does not fit."""
        snapshot, moves = scratch.snapshot, list[Move]()
        apart = snapshot.job(snapshot.tasks.job[unit.start]).distinct_nodes
        with scratch.ledger.trial() as attempt:
            for task in unit:
                used = {move.node for move in moves} if apart else set()
                move = self._move(scratch, task, used, rng)
                if move is None:
                    return []
                moves.append(move)
            if all(stays(snapshot, *move) for move in moves):
                return []
            attempt.keep()
        return moves

    def _move(self, scratch: Scratch, task: int, used: set[int], rng: Random) -> Move | None:
        snapshot, demand = scratch.snapshot, scratch.snapshot.tasks.demand[task]
        here = snapshot.tasks.node[task]
        if here not in used and rng.random() < 0.3:
            gpus = snapshot.held_gpus(task)
            if not set(gpus) & set(snapshot.withheld_gpus_of(here)):
                return Move(task, here, gpus)
        nodes = [node for node in snapshot.live_nodes() if node not in used]
        for node in rng.sample(nodes, len(nodes)):
            best = scratch.ledger.best_gpus(demand, node)
            if best is not None and not stays(snapshot, task, node, best):
                scratch.ledger.take(task, demand, node, best)
                return Move(task, node, best)
        return None


def _units(snapshot: Snapshot) -> Iterator[range]:
    """Yield the units of which all tasks run, in order."""
    states, seen = snapshot.tasks.state, set[range]()
    for task in snapshot.holding():
        unit = unit_of(snapshot, task)
        if unit in seen or snapshot.jobs.state[snapshot.tasks.job[task]] != JobState.ACTIVE:
            continue
        seen.add(unit)
        if all(states[member] in EXECUTING for member in unit):
            yield unit
