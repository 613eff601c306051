"""`headgate reproduce flow --live`: policies on a test bed of real nodes, and simulated."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.api.client import Client
from headgate.app import POLICIES
from headgate.base.errors import Problem, WorldError
from headgate.cli.reproduce.bed_controller import controller, until
from headgate.ports import make_policy
from headgate.state import State

if TYPE_CHECKING:
    from headgate.experiments.bed import Bed
    from headgate.experiments.flow.live import Comparison, LiveJob, MeasuredPolicy, Overhead

_UNSHAPED_MBIT_PER_S = 10_000
_RUN_S = 600.0
_PROBED_BYTES = 3 * 4 * (4 << 20)  # three rounds of probes between nodes
_ENDED = ("finished", "failed", "cancelled")
ShowProgress = Callable[[str], None]


def compare(
    policies: Sequence[str],
    uplinks_mbit_per_s: Sequence[float],
    *,
    kinds: Sequence[str] | None = None,
    shards: int = 10,
    show_progress: ShowProgress,
) -> Comparison:
    """Run the comparison; all processes are stopped at the end, also after a failure.

    Raises WorldError when the test bed or a run fails; see `need_network` for the requirements.
    """
    from headgate.experiments.bed import Bed
    from headgate.experiments.flow import live as flow_live

    need_network()
    base = Path(tempfile.mkdtemp(prefix="headgate-live-"))
    try:
        show_progress("generating the inputs")
        jobs = flow_live.make_jobs(base, kinds=kinds, shards=shards)
        show_progress("starting 8 virtual nodes in 2 racks")
        with Bed(flow_live.RACKS) as bed:
            live = _Live(bed, jobs, base)
            live.put(show_progress)
            overhead = None
            pairs = []
            for uplink in uplinks_mbit_per_s:
                live.shape(uplink, show_progress)
                if overhead is None:
                    overhead = live.calibrate(show_progress)
                pairs += [live.run(policy, uplink, overhead, show_progress) for policy in policies]
        assert overhead is not None, "there is a network"
        return flow_live.Comparison(pairs=tuple(pairs), overhead=overhead)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def need_network() -> None:
    """Raise WorldError without root or iproute2."""
    from headgate.experiments.bed import HAS_NETWORK

    if not HAS_NETWORK:
        text = "--live shapes the links between network namespaces"
        hint = "it needs root, and ip and tc of iproute2"
        raise WorldError([Problem(path="--live", problem=text, hint=hint)], code="needs_root")


@dataclass(slots=True)
class _Live:
    """A test bed with data, on which one controller after another runs the same jobs.

    Each starts from the same journal, which contains the data and the bandwidth, and no job.
    """

    bed: Bed
    jobs: Sequence[LiveJob]
    base: Path

    def put(self, show_progress: ShowProgress) -> None:
        """Put the data, then move the shards to their planned nodes."""
        from headgate.live.node.split import split_files

        show_progress("putting the data")
        self._limit(_UNSHAPED_MBIT_PER_S)
        held: dict[str, list[str]] = {}
        with self._controller("fs") as client:
            for job in self.jobs:
                for name, (path, shard_bytes) in job.data.items():
                    parts = split_files([path], shard_bytes, lines=False)
                    for index, (_, part) in enumerate(parts):
                        placed = client.put_shard(name, index, iter(part), replicas=1)
                        held.setdefault(name, []).append(placed["nodes"][0])
                    client.commit_dataset(name, shards=len(parts))
        self._move(held)
        self._keep_journal()

    def _move(self, held: Mapping[str, Sequence[str]]) -> None:
        """Move shards between the stores of nodes, and in the journal, while no controller runs."""
        from headgate.experiments.flow.live import places
        from headgate.journal import Journal
        from headgate.live.actors.executor import shards_directory
        from headgate.live.membership.membership import dataset_shard
        from headgate.live.node.store import ShardStore
        from headgate.protocol import Event, ReplicaAdded, ReplicaLost

        stores = {n.id: ShardStore(shards_directory(self.bed.root, n.id)) for n in self.bed.nodes}
        moves: list[Event] = []
        for name, nodes in self._places(places, held).items():
            for index, (source, to) in enumerate(zip(held[name], nodes, strict=True)):
                if source != to:
                    draft, now = self.bed.root / to / "moved", time.time()
                    path = stores[source].path(dataset_shard(name, index, 0).id)
                    shard = dataset_shard(name, index, path.stat().st_size)
                    shutil.copyfile(path, draft)
                    stores[to].adopt(shard.id, draft)
                    stores[source].remove(shard.id)
                    moves.append(ReplicaAdded(at=now, shard=shard, node=to))
                    moves.append(ReplicaLost(at=now, shard=shard.id, node=source))
        journal = Journal.open(self._journal)
        journal.append(moves)
        journal.close()

    def _places(self, places: Any, held: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        racks: dict[str, list[str]] = {}
        for node in self.bed.nodes:
            racks.setdefault(node.rack, []).append(node.id)
        found: dict[str, list[str]] = places({n: len(nodes) for n, nodes in held.items()}, racks)
        (self.base / "places.json").write_text(json.dumps(found))
        return found

    def shape(self, uplink_mbit_per_s: float, show_progress: ShowProgress) -> None:
        """Shape the uplinks, measure them, and store that journal for all later controllers."""
        show_progress(f"measuring the network at {uplink_mbit_per_s:g} Mbit/s between the racks")
        self._limit(uplink_mbit_per_s)
        self._fresh_journal()
        wanted = json.loads((self.base / "places.json").read_text())
        with self._controller("fs", probe_period_s=1.0) as client:
            before = _served(client).get("probe", 0)
            until(
                lambda: _served(client).get("probe", 0) - before >= _PROBED_BYTES,
                "the network was measured",
            )
            until(
                lambda: all(
                    [shard["nodes"] for shard in client.shards(name)] == [[node] for node in nodes]
                    for name, nodes in wanted.items()
                ),
                "the shards are on their planned nodes",
            )
        self._keep_journal()

    def calibrate(self, show_progress: ShowProgress) -> Overhead:
        """Run jobs without data and return their launch overhead."""
        from headgate.experiments.flow.live import calibration_jobs, measured_overhead

        show_progress("measuring the launch overhead")
        self._fresh_journal()
        with self._controller("fs") as client:
            texts = [json.dumps(job) for job in calibration_jobs(len(self.jobs))]
            self._ended(client, self._submit(client, texts))
        return measured_overhead(self._view())

    def run(
        self, policy: str, uplink: float, overhead: Overhead, show_progress: ShowProgress
    ) -> MeasuredPolicy:
        """Run the jobs under a policy, check their results, and simulate them."""
        from headgate.experiments.flow import live as flow_live

        self._fresh_journal()
        wrong: dict[str, str] = {}
        with self._controller(policy) as client:
            show_progress(f"{policy} at {uplink:g} Mbit/s")
            texts = [job.text(f"{job.job_kind}-{policy}-{uplink:g}") for job in self.jobs]
            before = _served(client)
            ids = dict(zip(self._submit(client, texts), self.jobs, strict=True))
            self._ended(client, list(ids))
            for job_id, job in ids.items():
                if verdict := self._wrong(client, job_id, job):
                    wrong[job.job_kind] = verdict
            served = self._served_since(client, before, list(ids))
        view = self._view()
        measured = flow_live.measured(view)
        real = (measured.read_bytes[0], served.get("rack", 0), served.get("cluster", 0))
        measured = replace(measured, read_bytes=real)
        sides = flow_live.simulated(
            view,
            make_policy(POLICIES, policy, _parameters(policy)),
            uplink_mbit_per_s=uplink,
            overhead=overhead,
        )
        times_s = [side.makespan_s for side in sides]
        pair = flow_live.MeasuredPolicy(
            policy=policy,
            uplink_mbit_per_s=uplink,
            simulated=flow_live.mean_side(sides),
            simulated_range_s=(min(times_s), max(times_s)),
            measured=measured,
            overhead=flow_live.measured_overhead(view),
            wrong=wrong,
        )
        show_progress(
            f"{policy} at {uplink:g} Mbit/s: {measured.makespan_s:.1f} s measured, "
            f"{pair.simulated.makespan_s:.1f} s simulated"
        )
        return pair

    def _submit(self, client: Client, texts: Sequence[str]) -> list[str]:
        """Submit the first jobs of a journal once executors run; return their ids.

        All nodes share one machine: executors that start beside tasks would hold these up.
        """
        command = [*self.bed.enter, sys.executable, "-m", "headgate.live.actors.warm"]
        user = pwd.getpwuid(os.geteuid()).pw_name
        done = subprocess.run(
            [*command, str(self.bed.state), user], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise WorldError(f"no executors could be started:\n{done.stderr[-2000:]}")
        return [client.submit(text) for text in texts]

    def _served_since(
        self, client: Client, before: Mapping[str, int], ids: Sequence[str]
    ) -> dict[str, int]:
        """Return the bytes sent to tasks since `before`, after all shard services have reported."""
        jobs = [client.job(job)["read_bytes"] for job in ids]
        least = {kind: sum(job[kind] for job in jobs) for kind in ("rack", "cluster")}

        def since() -> dict[str, int]:
            return {kind: n - before.get(kind, 0) for kind, n in _served(client).items()}

        until(
            lambda: all(since().get(kind, 0) >= count for kind, count in least.items()),
            "the shard services have reported the bytes sent",
        )
        return since()

    def _wrong(self, client: Client, job_id: str, job: LiveJob) -> str:
        """Return how a job's results are wrong, "" if they are right."""
        from headgate.workloads.verify import verify

        view = client.job(job_id)
        if view["state"] != "finished":
            return f"{view['state']}: {view['message']}"
        total, paths = view["tasks"]["total"], []
        for task in range(total - job.results, total):
            paths.append(self.base / f"result-{task}")
            with paths[-1].open("wb") as file:
                for piece in client.result(job_id, task):
                    file.write(piece)
        return verify(job.inputs, paths)

    def _ended(self, client: Client, ids: Sequence[str]) -> None:
        until(
            lambda: all(client.job(job)["state"] in _ENDED for job in ids),
            "the jobs have ended",
            _RUN_S,
        )

    @property
    def _journal(self) -> Path:
        return self.bed.state / "journal.db"

    def _keep_journal(self) -> None:
        shutil.copyfile(self._journal, self.base / "journal.db")

    def _fresh_journal(self) -> None:
        for file in self.bed.state.glob("journal.db*"):
            file.unlink()
        shutil.copyfile(self.base / "journal.db", self._journal)

    def _view(self) -> State:
        from headgate.live.controller.durable import DurableEngine

        durable = DurableEngine(self._journal)
        durable.close()
        return durable.engine.state

    def _limit(self, mbit_per_s: float) -> None:
        for rack in dict.fromkeys(node.rack for node in self.bed.nodes):
            self.bed.shape(rack, mbit_per_s=mbit_per_s)

    def _controller(
        self, policy: str, *, probe_period_s: float = 0.0
    ) -> AbstractContextManager[Client]:
        return controller(
            self.bed, policy, parameters=_parameters(policy), probe_period_s=probe_period_s
        )


def _parameters(policy: str) -> dict[str, float]:
    from headgate.experiments.flow.runs import PAPERS_OWN

    return dict(PAPERS_OWN.get(policy, {}))


def _served(client: Client) -> dict[str, int]:
    """Return the bytes that all shard services have sent, by purpose."""
    total: dict[str, int] = {}
    for node in client.nodes():
        for kind, count in (node["report"] or {}).get("served_bytes", {}).items():
            total[kind] = total.get(kind, 0) + count
    return total
