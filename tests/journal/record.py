"""Records the journal that later releases must open: `python -m tests.journal.record`.

A storm with an archive, and one event of every type that it lacks. To be run once per schema, when
its form is final; what it wrote is never changed afterwards.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.sim.weather import world_of

from headgate.app import POLICIES
from headgate.engine import Engine, drive
from headgate.engine.engine import Batch
from headgate.journal import Journal, encode_snapshot
from headgate.journal.journal import SCHEMA
from headgate.model import Dataset, Shard
from headgate.ports import make_policy
from headgate.protocol import (
    DatasetAdded,
    DatasetRemoved,
    Event,
    GpuUse,
    JobsArchived,
    JournalGap,
    NodeReported,
    PlanFailed,
    PlanRejected,
    ReplicaAdded,
    ReplicaLost,
    ResultsExpired,
    TimerFired,
)
from headgate.protocol.commands import Timer
from headgate.state import JobState, TaskState
from headgate.state.life import ENDED
from headgate.state.view import View
from headgate.testing.storms import storm

RECORDED = Path(__file__).parent / "recorded"
_SEED = 84  # of a storm with all that happens to runs, preemptions and reservations


def facts(view: View) -> dict[str, Any]:
    """Return what a state says that no release may read otherwise."""
    jobs = view.jobs
    return {
        "now": view.now,
        "jobs": {
            view.job(row).id: {
                "state": JobState(jobs.state[row]).name,
                "tasks": [TaskState(view.tasks.state[t]).name for t in view.tasks_of(row)],
                "attempts": [view.tasks.attempts[t] for t in view.tasks_of(row)],
                "times": repr([jobs.submitted_at[row], jobs.started_at[row], jobs.ended_at[row]]),
                "lost_gpu_s": jobs.lost_gpu_s[row],
            }
            for row in range(len(jobs.state))
        },
        "nodes": {
            name: [bool(view.nodes.alive[row]), view.nodes.free_gpus[row]]
            for name, row in view.names.node_rows.items()
        },
        "replicas": {
            shard: [view.node(node).id for node in view.replicas(row)]
            for row, shard in enumerate(view.names.shards)
        },
        "datasets": sorted(view.datasets),
    }


def _rest(engine: Engine) -> Iterator[Event]:
    """Yield an event of every type that a storm has not."""
    state = engine.state
    at, node = state.now + 1, state.node(state.live_nodes()[0]).id
    ended = [state.job(r).id for r, s in enumerate(state.jobs.state.array()) if s in ENDED]
    shard = Shard(id="d:00000", size_bytes=7)
    yield DatasetAdded(at=at, dataset=Dataset(name="d", user="ada", shards=(shard,)))
    yield DatasetAdded(at=at, dataset=Dataset(name="e", user="ada", shards=()))
    yield ReplicaAdded(at=at, shard=shard, node=node)
    yield DatasetRemoved(at=at, name="e")
    yield ReplicaLost(at=at, shard="d:00000", node=node)
    yield NodeReported(
        at=at, node=node, cpus_milli=1500, memory_bytes=1 << 30, gpus=(GpuUse(1 << 20, 250),)
    )
    yield PlanFailed(at=at, seen=state.version, message="it broke")
    yield PlanRejected(at=at, message="it planned the impossible")
    yield TimerFired(at=at + 2, timer=Timer.RETRY)
    yield ResultsExpired(at=at + 3, job=ended[0])
    yield JobsArchived(at=at + 4, jobs=tuple(ended[:1]))
    yield JournalGap(at=at + 5, events=3)


def main() -> None:
    """Write `recorded/schema-N.db`, and beside it what must be read from it."""
    policy = make_policy(POLICIES, "headgate")
    weather = storm(_SEED, accepts=lambda job: policy.refuses(job) is None)
    world = world_of(weather, policy)
    path = RECORDED / f"schema-{SCHEMA}.db"
    path.unlink(missing_ok=True)
    engine, journal = Engine(), Journal.open(path)
    seq, saved = 0, 0

    def record(batch: Batch) -> Batch:
        nonlocal seq, saved
        if batch:
            seq = journal.append(batch)
        return batch

    def snapshot(*_: object) -> None:
        nonlocal saved
        if seq - saved >= 50:
            journal.save_snapshot(seq, encode_snapshot(engine.snapshot()))
            saved = seq

    drive(engine, world, record=record, observe=(snapshot,))
    for event in _rest(engine):
        engine.replay(record((event,)))
    journal.close()
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = DELETE")  # one file, which git can keep
    path.with_name(f"{path.name}.last").unlink()
    text = json.dumps(facts(engine.state), indent=1)
    path.with_suffix(".json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
