"""Records the journal that later releases must open: `python -m tests.journal.record`.

A storm, and a script of what no storm has, so that every field of every event is there. Beside the
journal it writes what must be read from it, and what events could say then: a change of that needs
a new number of the schema (`headgate.journal.journal.SCHEMA`) and a journal recorded with it.
What a release has is never recorded again; before that, remove the files of the schema first.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.journal.script import play
from tests.journal.shapes import shape
from tests.sim.weather import world_of

from headgate.app import POLICIES
from headgate.engine import Engine, drive
from headgate.engine.engine import Batch
from headgate.journal import Journal, encode_snapshot
from headgate.journal.journal import SCHEMA
from headgate.ports import make_policy
from headgate.state import JobState, TaskState, check
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
        **_cluster(view),
        **_of_runs(view),
    }


def _cluster(view: View) -> dict[str, Any]:
    fleet, topology = view.fleet, view.topology
    return {
        "topology": None if topology is None else [type(topology).__name__, *topology.nodes],
        "orders": {key: [o.shape, o.failures, o.message] for key, o in fleet.orders.items()},
        "removing": dict(fleet.removing),
        "draining": {node: [drain.by, drain.reason] for node, drain in fleet.drains.items()},
        "withheld": [
            [view.node(view.gpus.node[row]).id, row - view.nodes.first_gpu[view.gpus.node[row]]]
            for row, held in enumerate(view.gpus.withheld)
            if held
        ],
        "outside": {
            view.node(row).id: list(used)
            for row, used in enumerate(view.nodes.outside.array().tolist())
            if any(used)
        },
        "node_memos": {
            name: {view.node(node).id: number for node, number in values.items()}
            for name, values in view.node_memos.items()
        },
    }


def _of_runs(view: View) -> dict[str, Any]:
    names = {t: f"{view.job(view.tasks.job[t]).id}/{t}" for t in range(len(view.tasks.state))}
    return {
        "places": {names[task]: view.node(view.tasks.node[task]).id for task in view.holding()},
        "stops": {names[t]: [s.cause.kind for s in stops] for t, stops in view.stops.items()},
        "hardened": view.hardened and view.hardened.job,
        "memos": {
            name: {view.job(j).id: number for j, number in enumerate(column.array()) if number}
            for name, column in view.memos.items()
        },
    }


def main() -> None:
    """Write `recorded/schema-N.db`, `.json` and `.events.json`; not over those that exist."""
    path = RECORDED / f"schema-{SCHEMA}.db"
    if path.exists():
        sys.exit(f"{path} exists: raise SCHEMA, or remove the files of a schema of no release")
    policy = make_policy(POLICIES, "headgate")
    weather = storm(_SEED, accepts=lambda job: policy.refuses(job) is None)
    world = world_of(weather, policy)
    engine, journal = Engine(), Journal.open(path)
    seq, saved = 0, 0

    def record(batch: Batch) -> Batch:
        nonlocal seq, saved
        if batch:
            seq = journal.append(batch)
        return batch

    def snapshot(*_: object) -> None:
        nonlocal saved
        if seq - saved >= 40:
            journal.save_snapshot(seq, encode_snapshot(engine.snapshot()))
            saved = seq

    drive(engine, world, record=record, observe=(snapshot,))
    play(engine, record, snapshot)
    check(engine.state)
    journal.close()
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = DELETE")  # one file, which git can keep
    path.with_name(f"{path.name}.last").unlink()
    for suffix, content in ((".json", facts(engine.state)), (".events.json", shape())):
        text = json.dumps(content, indent=1)
        path.with_suffix(suffix).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
