"""Round after round of one line of states: the solver is told only what has changed."""

from __future__ import annotations

import numpy as np

from headgate.flow import Certificate, Ints
from headgate.policies.flow.aggregated import Placed, Round
from headgate.policies.flow.laminar import LaminarRound
from headgate.policies.flow.offers import Offers, first_come
from headgate.policies.flow.scene import NONE, Scene
from headgate.state import Snapshot, TaskState
from headgate.state.changes import Changes


class Line:
    """The last round of a line of states, solved, and the next one."""

    def __init__(self, scene: Scene) -> None:
        """Solve a first round."""
        self.scene, self.followed = scene, 0
        self._offers = Offers()
        round_ = first_round(scene, self._offers)
        self.solved = LaminarRound(round_, scene.up())

    def next(self, scene: Scene) -> bool:
        """Solve the round of a later snapshot of the line; False where that is to begin anew."""
        changes = scene.now.changes_since(self.scene.snapshot)
        if changes is None or len(changes.nodes) or not self._is_alike(scene):
            return False
        tasks, solved = scene.tasks, self.solved
        there = changes.tasks[solved.has(changes.tasks)]
        gone = there[scene.snapshot.tasks.state.take(there) != TaskState.WAITING]
        offered = solved.has(tasks.row)
        if np.count_nonzero(offered) + len(gone) != solved.units:
            return False  # jobs are no longer placed by this policy, or again
        self._offers.count(scene.snapshot.tasks.alike.take(gone).astype(np.int64), -1)
        new = self._offers.new(tasks, scene.most, offered)
        other = self._with_other_reads(scene, changes, np.flatnonzero(offered))
        if 2 * (len(new) + len(other)) > solved.units:
            return False
        round_ = scene.round_of(np.sort(np.concatenate([new, other])), self._offers)
        self._offers.count(tasks.kind[new], 1)
        solved.next(round_, gone)
        self.scene, self.followed = scene, self.followed + 1
        return True

    def _is_alike(self, scene: Scene) -> bool:
        """Return whether nothing has changed that all prices hang on."""
        before = self.scene
        return before.snapshot.bandwidth == scene.snapshot.bandwidth and np.array_equal(
            before.now.class_bytes, scene.now.class_bytes
        )

    def _with_other_reads(self, scene: Scene, changes: Changes, offered: Ints) -> Ints:
        """Return which of the tasks offered read shards of other sizes or on other nodes now."""
        known = self._offers.read_among(changes.shards)
        if not len(known):
            return NONE
        changed = np.zeros(len(scene.snapshot.shards.size_bytes), bool)
        changed[known] = True
        inputs = scene.snapshot.tasks.input.take(scene.tasks.row[offered]).astype(np.int64)
        offsets, shard = scene.snapshot.inputs.shards.flat(inputs)
        reader = np.repeat(np.arange(len(offered)), np.diff(offsets))
        return offered[np.unique(reader[changed[shard]])]

    def placed(self) -> Placed:
        """Return who is placed where, the first of each kind, as indices into `Standing.task`."""
        return first_come(self.solved.placed(self.scene.tasks.row), self.scene.tasks.kind)

    def certificate(self) -> Certificate:
        """Check the plan against the round built anew from its snapshot."""
        tasks = np.flatnonzero(self.solved.has(self.scene.tasks.row))
        return self.solved.certificate(self.scene.round_of(tasks, Offers()))

    def knows(self, snapshot: Snapshot) -> bool:
        """Return whether a snapshot of the line is as old as the round, or older."""
        last = self.scene.snapshot
        return last.changes(snapshot) is not None


def first_round(scene: Scene, offers: Offers) -> Round:
    """Return the round of a scene, with all tasks that it offers."""
    tasks = offers.new(scene.tasks, scene.most, np.zeros(len(scene.tasks.row), bool))
    offers.count(scene.tasks.kind[tasks], 1)
    return scene.round_of(tasks, offers)
