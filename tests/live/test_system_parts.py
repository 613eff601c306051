"""Parts of the controller where timing matters, each alone: no Ray runs here."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.base.errors import SpecError, WorldError
from headgate.engine import Engine
from headgate.journal import Archive, Journal, decode_snapshot
from headgate.journal.codec import encode
from headgate.live.actors.agent import AgentReport, Leftovers
from headgate.live.actors.master_client import ReachableNodes
from headgate.live.cluster.ray_nodes import RayMember
from headgate.live.controller import durable
from headgate.live.controller.durable import DurableEngine
from headgate.live.controller.inbox import Inbox
from headgate.live.controller.world import LiveWorld
from headgate.live.data import datasets
from headgate.live.data.datasets import DatasetUploads
from headgate.live.membership.membership import Membership, _replicas_by_node
from headgate.live.node.node_status import NodeReport
from headgate.live.node.store import StoredShard
from headgate.machine import archiving
from headgate.model import Dataset, Gpu, Job, Node, Queue, Shard, Task
from headgate.policies.flow import FlowSharing
from headgate.protocol import (
    Command,
    DatasetAdded,
    DatasetRemoved,
    Decide,
    Event,
    JobCancelled,
    JobsArchived,
    JobSubmitted,
    LaunchTask,
    NodeJoined,
    NodeLost,
    NodeReported,
    Plan,
    PlanReady,
    QueueChanged,
    ReplicaAdded,
    ReplicaLost,
    Start,
    Steps,
    TaskFinished,
    TaskStarted,
)
from headgate.state import Snapshot, check
from headgate.testing.digest import digest

PART = Shard(id="d:00000", size_bytes=4)
NODE = Node(id="n0", rack="r0", gpus=(Gpu(memory_bytes=1),), incarnation="first")


def _engine() -> Engine:
    """Return an engine with one node, one dataset stored there, one finished job."""
    engine = Engine()
    job = Job(id="j", name="j", user="u", queue="default", tasks=(Task(), Task(after=(0,))))
    engine.handle(
        QueueChanged(at=0, queue=Queue(name="default")),
        NodeJoined(at=0, node=NODE),
        DatasetAdded(at=0, dataset=Dataset(name="d", user="u", shards=(PART,))),
        ReplicaAdded(at=0, shard=PART, node="n0"),
    )
    commands = engine.handle(JobSubmitted(at=1, job=job))
    for task in range(2):
        decide = commands[-1]
        plan = Plan(steps=Steps.of([Start(task, 0, (0,))]))
        (launch,) = engine.handle(PlanReady(at=2, seen=decide.seen, plan=plan))
        assert isinstance(launch, LaunchTask)
        commands = engine.handle(
            TaskStarted(at=3, run=launch.run), TaskFinished(at=4, run=launch.run, output_bytes=7)
        )
    return engine


def _membership(
    engine: Engine,
    files: Path,
    post: Callable[[Sequence[Event]], Future[None]] = lambda events: Future(),
    *,
    separate_users: bool = False,
) -> Membership:
    return Membership(
        root=Path("/nowhere"),
        reachable=ReachableNodes(),
        post=post,
        now=lambda: 9.0,
        snapshot=engine.snapshot,
        token="",
        archive=Archive.open(files / "archive.db"),
        separate_users=separate_users,
    )


def _report(*held: tuple[str, int]) -> AgentReport:
    return AgentReport(
        node="n0",
        uid=0,
        machine=NodeReport(
            cpus=1,
            cpu_utilisation=0,
            memory_bytes=1,
            memory_free_bytes=1,
            disk_bytes=1,
            disk_free_bytes=1,
            gpus=(),
        ),
        host="127.0.0.1",
        port=1,
        shards=tuple(StoredShard(id=name, size_bytes=size, checksum="") for name, size in held),
        corrupt=(),
        served_bytes={},
    )


@pytest.mark.parametrize("separate_users", [True, False])
def test_node_that_is_not_of_root_is_left_out_where_users_are_separate(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    separate_users: bool,
) -> None:
    posted: list[Event] = []

    def post(events: Sequence[Event]) -> Future[None]:
        posted.extend(events)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    async def report(name: str, agent: object) -> AgentReport:
        return replace(_report(), uid=1000)

    membership = _membership(_engine(), tmp_path, post=post, separate_users=separate_users)
    monkeypatch.setattr("headgate.live.membership.membership.start_agent", lambda *_, **__: None)
    monkeypatch.setattr(membership, "_report", report)
    member = RayMember(
        name="n1", ray_id="r", rack="r0", address="a", gpus=1, cpus=1, gpu_memory_bytes=1
    )
    assert asyncio.run(membership._add_member(member)) is not separate_users
    assert any(isinstance(event, NodeJoined) for event in posted) is not separate_users
    assert ("--shared-account" in caplog.text) is separate_users


def test_replica_added_after_the_request_is_not_lost_by_the_report(tmp_path: Path) -> None:
    engine = _engine()
    before = _replicas_by_node(engine.snapshot())
    report = _report(("j/0", 7), ("j/1", 7), ("d:00000", 4))
    engine.handle(ReplicaAdded(at=5, shard=Shard(id="d:00001", size_bytes=1), node="n0"))
    membership = _membership(engine, tmp_path)
    assert membership._missing_replicas(report, before["n0"]) == []
    (lost,) = membership._missing_replicas(report, _replicas_by_node(engine.snapshot())["n0"])
    assert lost == ReplicaLost(at=9.0, shard="d:00001", node="n0")


_MEMBER = RayMember(
    name="n0", ray_id="again", rack="r0", address="a", gpus=1, cpus=1, gpu_memory_bytes=1
)


def test_a_node_that_returns_brings_its_shards_and_results_but_nothing_stale(
    tmp_path: Path,
) -> None:
    engine = _engine()
    engine.handle(
        ReplicaLost(at=5, shard="j/0", node="n0"),
        NodeLost(at=5, node="n0"),
    )
    report = _report(
        ("d:00000", 4),
        ("d:00001", 4),  # of no dataset
        ("j/0", 7),  # found again, as its task's last run made it
        ("j/1", 8),  # not the size that its task reported
        ("k/0", 7),  # of no job
    )
    membership = _membership(engine, tmp_path)
    joined = membership._joined(_MEMBER, report)
    assert (joined.without, [s.id for s in joined.holds]) == (("j/1",), ["j/0"])
    engine.handle(joined)
    held = _replicas_by_node(engine.snapshot())["n0"]
    assert sorted(held) == ["d:00000", "j/0"]
    assert membership._found_replicas(report) == []


def test_shard_of_a_removed_dataset_is_not_taken_for_one_of_the_next_of_its_name(
    tmp_path: Path,
) -> None:
    engine = _engine()
    (dataset,) = engine.snapshot().datasets.values()
    engine.handle(
        NodeLost(at=5, node="n0"),
        DatasetRemoved(at=6, name="d"),
        DatasetAdded(at=7, dataset=dataset),
    )
    joined = _membership(engine, tmp_path)._joined(_MEMBER, _report(("d:00000", 4)))
    engine.handle(joined)
    assert joined.holds == ()
    assert _replicas_by_node(engine.snapshot())["n0"] == []


def test_returning_node_is_one_event_however_much_it_holds(tmp_path: Path) -> None:
    engine = _engine()
    shards = tuple(Shard(id=f"d:{n:05d}", size_bytes=1) for n in range(10_000))
    dataset = Dataset(name="d", user="u", shards=shards)
    engine.handle(
        DatasetAdded(at=5, dataset=dataset),
        *(ReplicaAdded(at=5, shard=shard, node="n0") for shard in shards),
        NodeLost(at=6, node="n0"),
    )
    report = _report(*((shard.id, 1) for shard in shards), ("j/0", 7), ("j/1", 7))
    joined = _membership(engine, tmp_path)._joined(_MEMBER, report)
    assert len(encode(joined)) < 1000, "its size does not grow with what it kept"
    engine.handle(joined)
    assert len(_replicas_by_node(engine.snapshot())["n0"]) == 10_002


class _Agent:
    """A fake agent, which records what it is to remove."""

    def __init__(self) -> None:
        self.removed: list[str] = []
        self.remove = self

    async def remote(self, what: Leftovers, reported_ns: int) -> None:
        assert reported_ns == 0
        self.removed += what.shards


def test_sweep_keeps_known_shards_and_those_of_uploads(tmp_path: Path) -> None:
    membership = _membership(_engine(), tmp_path)
    membership.uploading = lambda: ("coming",)
    agent = membership.agents["n0"] = _Agent()
    held = ("d:00000", "coming:00003", "gone:00000", "d:00009", "j/0", ".probe")

    async def sweep() -> None:
        membership._sweep(_report(*((name, 4) for name in held)))
        await asyncio.gather(*membership._sweeps.values())

    asyncio.run(sweep())
    assert agent.removed == ["gone:00000", "d:00009"]


def test_upload_of_a_dead_client_is_abandoned_but_not_an_active_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine()
    uploads = DatasetUploads(membership := _membership(engine, tmp_path), token="")
    with uploads._moving("d", 0, "ada", engine.snapshot):
        assert membership.uploading() == ("d",)
        monkeypatch.setattr(datasets, "_IDLE_S", 0.0)
        assert membership.uploading() == ("d",), "its shard is just coming in"
        with pytest.raises(SpecError, match="is being put by ada"):
            uploads._claim("d", "grace", engine.snapshot())
    assert membership.uploading() == ()


def test_events_cancelled_in_time_are_never_handled() -> None:
    inbox = Inbox()
    facts = [NodeLost(at=float(number), node="n") for number in range(3)]
    inbox.post([facts[0]])
    assert inbox.post([facts[1]], from_user=True).cancel()
    assert inbox.post([facts[2]]).cancel(), (
        "its future is cancelled, but it is an event of the world"
    )
    inbox.close()
    assert list(inbox.batches()) == [(facts[0], facts[2])]


class _FullDisk:
    """A journal whose disk is full until space is freed."""

    def __init__(self, journal: Any) -> None:
        self._journal, self.room, self.refused = journal, threading.Event(), 0

    def append(self, events: Sequence[Event]) -> int:
        if not self.room.is_set():
            self.refused += 1
            raise WorldError("no room", code="journal_full")
        return int(self._journal.append(events))


def test_full_disk_rejects_users_and_reports_of_use_and_delays_other_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "_RETRY_S", 0.01)
    inbox, kept = Inbox(), DurableEngine(tmp_path / "journal.db")
    journal = kept.journal
    disk = _FullDisk(journal)
    monkeypatch.setattr(kept, "journal", disk)
    fact, request = (
        QueueChanged(at=0, queue=Queue(name="a")),
        QueueChanged(at=0, queue=Queue(name="b")),
    )
    report = NodeReported(at=0, node="n0", cpus_milli=0, memory_bytes=0)
    inbox.post([fact])
    refused = [inbox.post([request], from_user=True), inbox.post([report])]
    batch = next(inbox.batches())
    kept_facts: list[tuple[Event, ...]] = []
    recorder = threading.Thread(target=lambda: kept_facts.append(kept.record(inbox, batch)))
    recorder.start()
    for handled in refused:
        with pytest.raises(WorldError, match="no room"):
            handled.result(timeout=10)
    assert kept.full is not None
    disk.room.set()
    recorder.join(10)
    assert kept_facts == [(fact,)]
    assert kept.full is None
    assert [event for _, event in journal.events()] == [fact]
    journal.close()


def test_journal_counts_as_full_until_an_event_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox, kept = Inbox(), DurableEngine(tmp_path / "journal.db")
    journal = kept.journal
    disk = _FullDisk(journal)
    monkeypatch.setattr(kept, "journal", disk)
    report = NodeReported(at=0, node="n0", cpus_milli=0, memory_bytes=0)
    for full in (True, False):
        inbox.post([report])
        assert kept.record(inbox, next(inbox.batches())) == (() if full else (report,))
        assert (kept.full is not None) == full
        disk.room.set()
    journal.close()


def _submissions(count: int) -> list[Event]:
    """Return a queue and jobs of one task each."""
    queue = QueueChanged(at=0.0, queue=Queue(name="default"))
    return [queue, *(JobSubmitted(at=float(n), job=_job(f"j{n}")) for n in range(count))]


def _job(name: str) -> Job:
    return Job(id=name, name="j", user="u", queue="default", tasks=(Task(),))


def test_a_snapshot_only_saves_replaying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(durable, "_SNAPSHOT_EVERY", 10)
    inbox, path = Inbox(), tmp_path / "journal.db"
    kept = DurableEngine(path)
    for event in _submissions(24):
        kept.engine.handle(*kept.record(inbox, (event,)))
        kept.save_periodically()
        assert kept._saving is None or kept._saving.result(10) is None
    right = digest(kept.engine.state)
    kept.close()

    again = DurableEngine(path)
    assert (again.replayed_events, digest(again.engine.state)) == (5, right)
    assert again.engine.outstanding() == [Decide(seen=25)]
    again.close()

    def unreadable(latest: int) -> Callable[[bytes], Snapshot]:
        count = itertools.count(1)

        def decode(data: bytes) -> Snapshot:
            if next(count) <= latest:
                raise ValueError("of another schema")
            return decode_snapshot(data)

        return decode

    monkeypatch.setattr(durable, "decode_snapshot", unreadable(1))
    other = DurableEngine(path)
    assert (other.replayed_events, digest(other.engine.state)) == (15, right)
    assert "after event 20 is skipped: of another schema" in caplog.text
    other.close()


def test_state_without_archived_jobs_is_rebuilt_from_a_journal_without_old_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "_SNAPSHOT_EVERY", 10)
    monkeypatch.setattr(archiving, "COMPACT_ROWS", 4)
    inbox, path = Inbox(), tmp_path / "journal.db"
    kept = DurableEngine(path)

    def happens(*events: Event) -> list[Command]:
        commands = kept.engine.handle(*events, record=lambda batch: kept.record(inbox, batch))
        check(kept.engine.state)
        kept.save_periodically()
        assert kept._saving is None or kept._saving.result(10) is None
        return commands

    happens(QueueChanged(at=0.0, queue=Queue(name="default")))
    for number in range(30):
        (decide,) = happens(JobSubmitted(at=float(number), job=_job(f"j{number}")))
        assert isinstance(decide, Decide)
        happens(JobCancelled(at=float(number), job=f"j{number}", by="u"))
        happens(JobsArchived(at=float(number), jobs=(f"j{number}",)))
        happens(PlanReady(at=float(number), seen=decide.seen, plan=Plan()))
    state = kept.engine.state
    assert len(state.names.jobs) < 5, "archived jobs have left the tables"
    right = digest(state)
    kept.close()
    again = DurableEngine(path)
    assert again.journal.first_kept > 80
    assert digest(again.engine.state) == right
    assert again.engine.state.next_job == 31
    again.close()


def test_journal_is_closed_when_its_gap_cannot_be_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.db"
    kept = DurableEngine(path)
    kept.record(Inbox(), tuple(_submissions(1)))
    kept.journal._tail.write(5, bytes(16))  # three events more than the journal has
    kept.close()

    def full(journal: Journal, events: Sequence[Event]) -> int:
        raise WorldError("full", code="journal_full")

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "append", full)
        with pytest.raises(WorldError) as refused:
            DurableEngine(path)
        assert refused.value.code == "journal_full"
    again = DurableEngine(path)
    assert again.journal.missing_events == 3
    again.close()


def test_journal_without_a_readable_snapshot_is_rejected_once_old_events_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "_SNAPSHOT_EVERY", 10)
    inbox, path = Inbox(), tmp_path / "journal.db"
    kept = DurableEngine(path)
    for event in _submissions(24):
        kept.engine.handle(*kept.record(inbox, (event,)))
        kept.save_periodically()
        assert kept._saving is None or kept._saving.result(10) is None
    kept.close()
    with closing(sqlite3.connect(path)) as editor, editor:
        editor.execute("UPDATE snapshots SET checksum = x'00'")
    for _ in range(2):  # the refused journal is let go
        with pytest.raises(WorldError, match="events 1 to 10 were deleted") as refused:
            DurableEngine(path)
        assert refused.value.code == "journal_damaged"


def test_snapshot_that_cannot_be_saved_only_lengthens_the_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(durable, "_SNAPSHOT_EVERY", 10)

    def broken(_: object) -> bytes:
        raise RuntimeError("no bytes today")

    monkeypatch.setattr(durable, "encode_snapshot", broken)
    inbox, path = Inbox(), tmp_path / "journal.db"
    kept = DurableEngine(path)
    for event in _submissions(24):
        kept.engine.handle(*kept.record(inbox, (event,)))
        kept.save_periodically()
    kept.close()
    assert "no snapshot was saved" in caplog.text
    again = DurableEngine(path)
    assert (again.replayed_events, digest(again.engine.state)) == (25, digest(kept.engine.state))
    again.close()


def test_a_missing_end_of_the_journal_is_reported_and_its_numbers_are_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inbox, path = Inbox(), tmp_path / "journal.db"
    kept = DurableEngine(path)
    events = _submissions(3)
    kept.engine.handle(*kept.record(inbox, tuple(events)))
    kept.journal._db.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    for number in range(7):
        kept.engine.handle(*kept.record(inbox, (JobSubmitted(at=9.0, job=_job(f"x{number}")),)))
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    for name in ("journal.db", "journal.db.last"):
        shutil.copyfile(tmp_path / name, crashed / name)
    kept.close()

    again = DurableEngine(crashed / "journal.db")
    state = again.engine.state
    assert "the last 7 events of the journal are missing" in caplog.text
    assert [job.id for job in state.names.jobs] == ["j0", "j1", "j2"]
    assert state.next_job == 4 + 7, "ids of the lost jobs are not used again"
    assert state.tasks.next_attempt.array().tolist() == [8] * 3
    again.close()
    caplog.clear()
    once_more = DurableEngine(crashed / "journal.db")
    assert "missing" not in caplog.text
    assert digest(once_more.engine.state) == digest(state)
    once_more.close()


def test_closed_world_cancels_its_tasks() -> None:
    world = LiveWorld(policies=lambda name: FlowSharing(), seed=0, root=Path("/nowhere"))
    begun, ended = threading.Event(), threading.Event()

    async def watch() -> None:
        begun.set()
        try:
            await asyncio.sleep(1000)
        finally:
            ended.set()

    world.start(watch())
    assert begun.wait(10)
    world.close()
    assert ended.is_set()


def test_launches_reach_a_job_before_their_stops() -> None:
    world = LiveWorld(policies=lambda name: FlowSharing(), seed=0, root=Path("/nowhere"))
    order: list[str] = []
    done = threading.Event()
    world._launch = lambda *_: order.append("launch")  # type: ignore[method-assign]
    world._stop = lambda command: (order.append("stop"), done.set())  # type: ignore[method-assign]
    engine = _engine()
    job = Job(id="k", name="k", user="u", queue="default", tasks=(Task(),))
    (decide,) = engine.handle(JobSubmitted(at=5, job=job))
    plan = Plan(steps=Steps.of([Start(2, 0, (0,))]))
    engine.handle(PlanReady(at=6, seen=decide.seen, plan=plan))
    engine.handle(JobCancelled(at=7, job="k", by="u"))
    world.submit(list(reversed(engine.outstanding())), engine.decision_snapshot)
    assert done.wait(10)
    world.close()
    assert order == ["launch", "stop"]
