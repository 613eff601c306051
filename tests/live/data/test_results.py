"""Copies and expiry of results: the real engine, real node agents in this process, no Ray."""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import RayTaskError
from tests.live.conftest import ME

from headgate.api.archived import record_of
from headgate.base.errors import WorldError
from headgate.engine import Engine
from headgate.journal import Archive
from headgate.live.actors.agent import NodeAgent
from headgate.live.actors.master_client import ReachableNodes
from headgate.live.cluster.ray_nodes import RayMember
from headgate.live.data.archivist import Archivist
from headgate.live.data.expiry import Expiry
from headgate.live.data.replication import Replicator
from headgate.live.membership.sweep import leftovers
from headgate.live.node.shared import find_shared
from headgate.live.node.split import NodeSpace, choose_further
from headgate.model import (
    Dataset,
    Demand,
    Gpu,
    Job,
    Node,
    Queue,
    RunId,
    Shard,
    Task,
    result_ids,
    task_of_result,
)
from headgate.protocol import (
    DatasetAdded,
    Decide,
    Event,
    JobSubmitted,
    LaunchTask,
    NodeJoined,
    NodeLost,
    Plan,
    PlanReady,
    QueueChanged,
    ReplicaAdded,
    Start,
    Steps,
    TaskFinished,
    TaskStarted,
)
from headgate.state import TaskState

RACKS = {"n0": "r0", "n1": "r0", "n2": "r1"}


class Remote:
    """An agent that is called as a Ray actor is."""

    def __init__(self, agent: NodeAgent) -> None:
        self.agent = agent
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.calls.append(name)
        return _Method(getattr(self.agent, name))


class _Method:
    def __init__(self, method: Any) -> None:
        self._method = method

    async def remote(self, *arguments: Any) -> Any:
        try:
            return await asyncio.to_thread(self._method, *arguments)
        except (WorldError, OSError) as error:
            raise RayTaskError("agent", "its traceback", error) from None


class Bench:
    """Three nodes in two racks with real stores and shard services, a replicator and expiry."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.at = 100.0
        self.engine = Engine()
        self.decide: Decide | None = None  # the last one
        self.events: list[Event] = []
        self.reachable = ReachableNodes()
        self.agents: dict[str, Any] = {}
        self.reports: dict[str, dict[str, Any]] = {}
        self.give(QueueChanged(at=self.at, queue=Queue(name="default")))
        for name in RACKS:
            self.bring_up(name)
        common = {"post": self.post, "now": lambda: self.at, "snapshot": self.engine.snapshot}
        self.replicator = Replicator(
            agents=self.agents, reports=self.reports, reachable=self.reachable, **common
        )
        self.archive = Archive.open(root.with_name("archive.db"))
        self.expiry = Expiry(default_s=1000.0, archive=self.archive, **common)
        self.forgotten: list[str] = []
        self.archivist = Archivist(
            archive=self.archive,
            record_of=record_of,
            retain_s=500.0,
            archived=lambda jobs: self.forgotten.extend(job.id for job in jobs),
            **common,
        )

    def bring_up(self, name: str) -> None:
        agent = NodeAgent(node=name, host="127.0.0.1", root=str(self.root), token="bench")
        report = agent.report()
        self.agents[name] = Remote(agent)
        self.reports[name] = {"disk_free_bytes": report.machine.disk_free_bytes}
        self.reachable.addresses[name] = (report.host, report.port)
        self.reachable.members[name] = RayMember(
            name=name, ray_id=name, address=report.host, rack=RACKS[name], gpus=1, cpus=1,
            gpu_memory_bytes=1,
        )  # fmt: skip
        gpus = (Gpu(memory_bytes=1),) * 4
        self.give(NodeJoined(at=self.at, node=Node(id=name, rack=RACKS[name], gpus=gpus)))

    def lose(self, name: str) -> None:
        self.agents.pop(name).agent._server.close()
        del self.reports[name], self.reachable.addresses[name], self.reachable.members[name]
        self.give(NodeLost(at=self.at, node=name))

    def give(self, *events: Event) -> list[Any]:
        commands = self.engine.handle(*events)
        self.decide = next((c for c in commands if isinstance(c, Decide)), self.decide)
        return commands

    def post(self, events: Sequence[Event]) -> Future[None]:
        self.events += events
        self.engine.handle(*events)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def run_job(
        self,
        name: str,
        results: Sequence[bytes | None],
        node: str = "n0",
        user: str = ME,
        **more: Any,
    ) -> None:
        """Submit a job, and run each of its tasks that has a result to its end on one node."""
        tasks = tuple(Task(demand=Demand(gpus=1)) for _ in results)
        job = Job(id=name, name=name, user=user, queue="default", tasks=tasks, **more)
        if self.decide is not None:  # no plan was made yet, as a task of an earlier job waits
            self.give(PlanReady(at=self.at, seen=self.decide.seen, plan=Plan(steps=Steps.of([]))))
        self.give(JobSubmitted(at=self.at, job=job))
        decide, self.decide = self.decide, None
        assert decide is not None
        state = self.engine.state
        first, at = len(state.tasks.state) - len(tasks), state.names.node_rows[node]
        known = {i: content for i, content in enumerate(results) if content is not None}
        plan = Plan(steps=Steps.of(Start(first + i, at, (i,)) for i in known))
        launches = self.give(PlanReady(at=self.at, seen=decide.seen, plan=plan))
        for launch in [launch for launch in launches if isinstance(launch, LaunchTask)]:
            content = known[launch.run.ordinal]
            self.store(node).put(f"{name}/{launch.run.ordinal}", [content])
            self.give(TaskStarted(at=self.at, run=launch.run))
            self.give(TaskFinished(at=self.at, run=launch.run, output_bytes=len(content)))

    def store(self, node: str) -> Any:
        return self.agents[node].agent._store

    def replicate(self) -> None:
        """Look until no copy is in progress or ready."""

        async def look() -> None:
            self.replicator._look()
            while self.replicator._copying or self.replicator._ready or self.replicator._checks:
                await asyncio.sleep(0.01)
                self.replicator._look()

        asyncio.run(asyncio.wait_for(look(), 60))

    def holders(self, shard: str) -> list[str]:
        """Return the nodes with a replica in the state, and check that all store it."""
        state = self.engine.state
        nodes = [state.node(n).id for n in state.replicas(state.names.shard_rows[shard])]
        assert all(self.store(node).verify(shard) for node in nodes)
        return nodes

    def expire(self) -> list[str]:
        """Look once; return the jobs whose results have expired."""
        before = len(self.events)
        asyncio.run(self.expiry.look())
        return [event.job for event in self.events[before:]]  # type: ignore[attr-defined]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "nodes")
    yield bench
    bench.archive.close()
    for remote in bench.agents.values():
        remote.agent._server.close()


# --- copies ------------------------------------------------------------------------------------


def test_further_copy_goes_to_another_rack_and_no_result_gets_more_than_its_job_wants(
    bench: Bench,
) -> None:
    bench.run_job("twice", [b"a", b"b"], result_replicas=2)
    bench.run_job("once", [b"c"])
    bench.replicate()
    assert bench.holders("twice/0") == bench.holders("twice/1") == ["n0", "n2"]
    assert bench.holders("once/0") == ["n0"]
    copied = [event.run for event in bench.events if isinstance(event, ReplicaAdded)]
    runs = {RunId("twice", 0, 1), RunId("twice", 1, 1)}  # in the order in which copies end
    assert len(copied) == 2
    assert set(copied) == runs, "the runs that wrote the results"


def test_copy_lost_with_its_node_is_made_again_from_one_that_is_left(bench: Bench) -> None:
    bench.run_job("j", [b"a"], result_replicas=2)
    bench.replicate()
    bench.lose("n0")
    bench.replicate()
    assert bench.holders("j/0") == ["n1", "n2"]


def test_missing_copies_are_made_when_a_node_joins(bench: Bench) -> None:
    bench.lose("n1")
    bench.run_job("j", [b"a"], result_replicas=3)
    bench.replicate()
    assert bench.holders("j/0") == ["n0", "n2"]
    bench.bring_up("n1")
    bench.replicate()
    assert bench.holders("j/0") == ["n0", "n1", "n2"]


def test_shortfall_is_logged_once_for_a_job(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        bench.run_job("j", [b"a", b"b"], result_replicas=8)
        bench.replicate()
    (said,) = caplog.messages
    assert re.search("results of j: j/. has 3 of 8 copies: no other node with room for it", said)


def test_node_without_free_space_is_skipped(bench: Bench) -> None:
    bench.reports["n2"]["disk_free_bytes"] = 0
    bench.run_job("j", [b"a"], result_replicas=2)
    bench.replicate()
    assert bench.holders("j/0") == ["n0", "n1"]


def test_copy_that_fails_on_one_node_is_made_on_another_and_leaves_no_file(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    drafts = bench.root / "n2" / "copies"
    drafts.rmdir()
    drafts.touch()  # what is copied there cannot be written down
    bench.run_job("j", [b"a"], result_replicas=2)
    for _ in range(5):
        bench.replicate()
        bench.at += 61.0
    assert bench.holders("j/0") == ["n0", "n1"]
    assert bench.store("n2").find("j/0") is None
    assert any("on n2" in message for message in caplog.messages)


@pytest.mark.parametrize("lost", ["n0", "n2"])
def test_node_that_is_lost_during_the_copy_leaves_a_result_that_can_be_copied_again(
    bench: Bench, lost: str
) -> None:
    bench.run_job("j", [b"a"], result_replicas=2)

    async def look() -> None:
        bench.replicator._look()
        assert bench.replicator._copying
        bench.lose(lost)
        while copying := bench.replicator._copying:
            await asyncio.gather(*copying.values())

    asyncio.run(look())
    bench.replicate()
    left = bench.holders("j/0")
    assert left == (["n0", "n1"] if lost == "n2" else []), "without its only copy nothing is known"
    bench.bring_up(lost)
    bench.replicate()
    assert bench.holders("j/0") == left


def test_existing_copy_is_not_transferred_again(bench: Bench) -> None:
    bench.run_job("j", [b"a"], result_replicas=2)
    bench.store("n2").put("j/0", [b"a"])  # made before the controller was killed, say
    bench.replicate()
    assert bench.holders("j/0") == ["n0", "n2"]
    assert bench.agents["n0"].agent.report().served_bytes.get("copy", 0) == 0


def test_copy_with_other_content_is_replaced(bench: Bench) -> None:
    bench.run_job("j", [b"new"], result_replicas=2)
    bench.store("n2").put("j/0", [b"old"])
    bench.replicate()
    assert bench.store("n2").path("j/0").read_bytes() == b"new"


def test_copy_of_a_result_that_expired_meanwhile_is_not_posted(bench: Bench) -> None:
    bench.run_job("j", [b"a"], result_replicas=2, keep_s=1.0)

    async def copy_late() -> None:
        bench.replicator._look()
        bench.at += 2.0
        await bench.expiry.look()
        while copying := bench.replicator._copying:
            await asyncio.gather(*copying.values())

    asyncio.run(copy_late())
    assert bench.holders("j/0") == []
    assert not any(isinstance(event, ReplicaAdded) for event in bench.events)


def test_look_costs_what_has_changed(bench: Bench) -> None:
    for number in range(20):
        bench.run_job(f"j{number}", [b"a"], result_replicas=2)
    bench.replicate()
    asked = [remote.calls.copy() for remote in bench.agents.values()]
    bench.replicate()
    bench.at += 3600.0
    bench.replicate()
    assert [remote.calls for remote in bench.agents.values()] == asked
    assert not bench.replicator._ready
    assert not bench.replicator._waiting


def test_many_results_are_copied_without_a_look_for_each(bench: Bench) -> None:
    for job in ("first", "second", "third"):
        bench.run_job(job, [b"a"] * 4, result_replicas=2)

    async def look_once() -> None:
        bench.replicator._look()
        while copying := bench.replicator._copying:
            await asyncio.gather(*copying.values())

    asyncio.run(asyncio.wait_for(look_once(), 60))
    names = [f"{job}/{n}" for job in ("first", "second", "third") for n in range(4)]
    assert [bench.holders(name) for name in names] == [["n0", "n2"]] * 12


def test_result_is_written_below_the_shared_path_too(bench: Bench, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    bench.run_job("j", [b"a", b"bb"], results_path=str(shared))
    bench.replicate()
    assert {f.name: f.read_bytes() for f in (shared / "j").iterdir()} == {"0": b"a", "1": b"bb"}
    assert bench.holders("j/0") == ["n0"]
    bench.lose("n0")
    state = bench.engine.state
    assert state.is_kept(state.names.shard_rows["j/0"])


def test_missing_shared_path_is_retried(bench: Bench, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    bench.run_job("j", [b"a"], results_path=str(shared), result_replicas=2)
    bench.replicate()
    assert bench.holders("j/0") == ["n0", "n2"], "the copies on nodes do not wait for it"
    shared.mkdir()
    bench.at += 61.0
    bench.replicate()
    assert (shared / "j" / "0").read_bytes() == b"a"


def test_result_that_was_removed_from_the_shared_path_is_computed_again_when_its_node_is_lost(
    bench: Bench, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    bench.run_job("ended", [b"a", b"b"], results_path=str(shared))
    bench.run_job("j", [b"a", b"b", None], results_path=str(shared))
    bench.replicate()
    for job in ("ended", "j"):
        (shared / job / "1").unlink()
    bench.lose("n0")
    bench.replicate()
    states = [TaskState(bench.engine.state.tasks.state[row]).name for row in range(5)]
    assert states == ["FINISHED", "FINISHED", "FINISHED", "WAITING", "WAITING"]


@pytest.mark.parametrize(
    ("held", "count", "expected"),
    [
        (["a0"], 1, {"b0", "b1", "c0"}),  # another rack
        (["a0", "b0"], 1, {"b1"}),  # the second's rack
        (["a0"], 9, {"a1", "b0", "b1", "c0"}),
        (["gone"], 1, {"a0", "a1", "b0", "b1", "c0"}),
        (["a0"], 0, set()),
    ],
)
def test_further_copies_spread_over_racks(held: list[str], count: int, expected: set[str]) -> None:
    places = [NodeSpace(name, name[0], 10) for name in ("a0", "a1", "b0", "b1", "c0")]
    places.append(NodeSpace("d0", "d", 9))  # without room
    chosen = [choose_further(turn, places, held, count, size_bytes=10) for turn in range(12)]
    assert {node for nodes in chosen for node in nodes} == expected
    assert {len(nodes) for nodes in chosen} == {min(count, len(expected))}


def test_shared_result_is_checked_again_after_its_file_system_did_not_respond(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    bench.run_job("j", [b"a", None], results_path=str(shared))
    bench.replicate()
    (shared / "j" / "0").unlink()
    bench.lose("n0")
    calls = []

    def stalled_once(*arguments: Any, **options: Any) -> Path | None:
        calls.append(arguments)
        if len(calls) == 1:
            raise WorldError("it does not respond", code="unreachable")
        return find_shared(*arguments, **options)

    monkeypatch.setattr("headgate.live.data.replication.find_shared", stalled_once)
    bench.replicate()
    assert len(calls) == 2
    assert bench.engine.state.tasks.state[0] == TaskState.WAITING, "it is computed again"


# --- expiry ------------------------------------------------------------------------------------


def test_results_expire_by_the_retention_of_the_job_or_the_cluster(bench: Bench) -> None:
    bench.run_job("short", [b"a"], keep_s=10.0)
    bench.run_job("default", [b"a"])
    bench.run_job("ever", [b"a"], keep_s=math.inf)
    found = []
    for at in (109.9, 110.0, 111.0, 1099.0, 1100.0, 1e12):
        bench.at = at
        found.append(bench.expire())
    assert found == [[], ["short"], [], [], ["default"], []]
    assert bench.holders("short/0") == []
    assert bench.holders("ever/0") == ["n0"]


def test_results_of_a_job_in_flight_never_expire(bench: Bench) -> None:
    job = Job(id="j", name="j", user="u", queue="default", tasks=(Task(),), keep_s=1.0)
    bench.give(JobSubmitted(at=bench.at, job=job))
    bench.at = 1e9
    assert bench.expire() == []


def test_expiry_follows_from_the_state_alone(bench: Bench) -> None:
    bench.run_job("before", [b"a"], keep_s=1.0)
    bench.run_job("after", [b"a"], keep_s=50.0)
    bench.at += 10.0
    assert bench.expire() == ["before"]
    again = Expiry(
        default_s=math.inf,
        archive=bench.archive,
        post=bench.post,
        now=lambda: bench.at,
        snapshot=bench.engine.snapshot,
    )
    bench.expiry = again
    assert bench.expire() == [], "what has expired does so once"
    bench.at += 40.0
    assert bench.expire() == ["after"]


def test_expiry_drops_jobs_that_have_left_the_state(bench: Bench) -> None:
    for number in range(10):
        bench.run_job(f"j{number}", [b"a"], keep_s=1.0)
        bench.at += 2.0
        assert bench.expire() == [f"j{number}"]
    assert bench.expiry._heap == []


def test_shared_results_are_removed_before_they_have_expired(bench: Bench, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    bench.run_job("j", [b"a"], results_path=str(shared), keep_s=5.0)
    bench.replicate()
    bench.at += 5.0
    assert bench.expire() == ["j"]
    assert list(shared.iterdir()) == []


# --- what is left on nodes -----------------------------------------------------------------------


def test_leftovers_are_data_that_the_state_does_not_need(bench: Bench) -> None:
    bench.run_job("gone", [b"a"], keep_s=1.0)
    bench.run_job("kept", [b"a"])
    queued = Job(id="runs", name="runs", user="u", queue="default", tasks=(Task(),))
    parts = tuple(Shard(id=f"d:{n:05d}", size_bytes=1) for n in range(2))
    bench.give(JobSubmitted(at=bench.at, job=queued))
    bench.give(DatasetAdded(at=bench.at, dataset=Dataset(name="d", user="u", shards=parts)))
    bench.at += 2.0
    bench.expire()
    for job in ("gone", "kept", "runs", "unknown"):
        (bench.root / "n0" / "runs" / job / "7").mkdir(parents=True)
        (bench.root / "n0" / "logs" / job).mkdir(parents=True)
    for shard in ("d:00000", "d:00002", "coming:00000", "half:00000", "unknown/0"):
        bench.store("n0").put(shard, [b"x"])
    agent = bench.agents["n0"].agent
    report = agent.report()
    what = leftovers(bench.engine.snapshot(), report, ("coming",), {})
    assert what.jobs == ("gone",)
    assert what.scratch == ("gone", "kept")
    assert what.shards == ("d:00002", "half:00000")
    agent.remove(what, report.at_ns + 10**10)
    left = [shard.id for shard in agent.report().shards]
    assert left == ["coming:00000", "d:00000", "kept/0", "unknown/0"]
    directories = [f"{d.parent.name}/{d.name}" for d in sorted((bench.root / "n0").glob("*/*"))]
    assert [d for d in directories if d.startswith(("logs", "runs"))] == [
        "logs/kept", "logs/runs", "logs/unknown", "runs/runs", "runs/unknown",
    ]  # fmt: skip
    assert not leftovers(bench.engine.snapshot(), agent.report(), ("coming",), {})


def test_shard_put_again_after_the_report_is_not_removed(bench: Bench) -> None:
    agent = bench.agents["n0"].agent
    agent._store.put("d:00000", [b"old"])
    report = agent.report()
    what = leftovers(bench.engine.snapshot(), report, (), {})
    agent._store.put("d:00000", [b"new"])  # a put of the same name has begun
    agent.remove(what, report.at_ns)
    assert agent._store.path("d:00000").read_bytes() == b"new"


def test_agent_removes_drafts_of_a_dead_agent(tmp_path: Path) -> None:
    drafts = tmp_path / "n0" / "copies"
    drafts.mkdir(parents=True)
    (drafts / ".fetch-half").write_bytes(b"half")
    agent = NodeAgent(node="n0", host="127.0.0.1", root=str(tmp_path), token="bench")
    agent._server.close()
    assert list(drafts.iterdir()) == []


@pytest.mark.parametrize(("job", "ordinal", "parts"), [("a-1", 0, 1), ("x/y", 12, 3)])
def test_task_of_a_result_is_found_by_its_id(job: str, ordinal: int, parts: int) -> None:
    assert {task_of_result(name) for name in result_ids(job, ordinal, parts)} == {(job, ordinal)}


@pytest.mark.parametrize("name", ["d:00000", "file:/a/b/0", "0", "/0", "j/x", "j/", ".probe"])
def test_id_that_is_no_result_has_no_task(name: str) -> None:
    assert task_of_result(name) is None
