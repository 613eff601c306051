"""Ended jobs leave the state for the archive, and their results are readable until they expire.

The real engine, real node agents in this process, no Ray.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.live.data.test_results import Bench

from headgate.live.actors.master_client import ReachableNodes
from headgate.live.data import archivist
from headgate.live.data.outputs import Outputs
from headgate.live.membership.membership import Membership
from headgate.live.membership.sweep import leftovers, unknown_jobs
from headgate.machine import archiving
from headgate.protocol import JobsArchived
from headgate.state import check
from headgate.state.lookup import known_row


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(archiving, "COMPACT_ROWS", 1)
    bench = Bench(tmp_path / "nodes")
    yield bench
    bench.archive.close()
    for remote in bench.agents.values():
        remote.agent._server.close()


def archive(bench: Bench) -> list[str]:
    """Look until no job is archived; return the archived jobs."""
    before = len(bench.forgotten)
    while asyncio.run(bench.archivist.look()):
        check(bench.engine.state)
    return bench.forgotten[before:]


def compacted(bench: Bench) -> None:
    """Complete a decision, so that archived rows leave the tables."""
    bench.run_job(f"round-{len(bench.events)}-{bench.at}", [b"x"], node="n2")
    check(bench.engine.state)


def hot(bench: Bench) -> list[str]:
    view = bench.engine.snapshot()
    return [job.id for job in view.names.jobs if known_row(view, job.id) is not None]


def outputs(bench: Bench) -> Outputs:
    return Outputs(
        snapshot=bench.engine.snapshot, archive=bench.archive, agents=bench.agents,
        reachable=bench.reachable, token="bench",
    )  # fmt: skip


def test_jobs_are_archived_after_their_retention(bench: Bench) -> None:
    bench.run_job("first", [b"a", b"b"])
    bench.at += 100.0
    bench.run_job("second", [b"a"])
    assert archive(bench) == []
    bench.at += 400.0
    assert archive(bench) == ["first"]
    assert hot(bench) == ["second"]
    bench.at += 100.0
    assert archive(bench) == ["second"]
    assert [job.job.id for job in bench.archive.page(limit=9)] == ["second", "first"]
    compacted(bench)
    assert "first" not in bench.engine.state.names.job_rows
    assert archive(bench) == [], "an archived job goes once"


def test_oldest_jobs_are_archived_early_beyond_the_limit_of_the_state(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archivist, "_ENDED_MOST", 3)
    for number in range(5):
        bench.run_job(f"j{number}", [b"a"])
        bench.at += 1.0
    assert archive(bench) == [], "what is on its way about a job has a minute to arrive"
    bench.at += 60.0
    assert archive(bench) == ["j0", "j1"]


def test_a_look_archives_a_bounded_number_of_jobs_and_tasks(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archivist, "_JOBS_PER_LOOK", 3)
    monkeypatch.setattr(archivist, "_TASKS_PER_LOOK", 4)
    for number, tasks in enumerate((1, 1, 1, 1, 4, 4)):
        bench.run_job(f"j{number}", [b"a"] * tasks)
    bench.at += 500.0
    looks = [asyncio.run(bench.archivist.look()) for _ in range(5)]
    assert looks == [3, 2, 1, 0, 0]


def test_job_stays_while_copies_of_its_results_are_wanted_or_missing(
    bench: Bench, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    bench.run_job("copies", [b"a"], result_replicas=2, keep_s=600.0)
    bench.run_job("shared", [b"a"], results_path=str(shared))
    bench.replicate()
    bench.at += 500.0
    assert archive(bench) == []
    shared.mkdir()
    bench.at += 61.0
    bench.replicate()
    assert archive(bench) == ["shared"]
    bench.at += 40.0
    assert bench.expire() == ["copies"]
    assert archive(bench) == ["copies"]


def test_a_crash_between_archive_and_event_repeats_the_addition(bench: Bench) -> None:
    bench.run_job("j", [b"a"])
    bench.at += 500.0
    view = bench.engine.snapshot()
    assert [job.id for job in bench.archivist._archive_jobs(view)] == ["j"]
    assert known_row(bench.engine.snapshot(), "j") is not None, "the event was not posted"
    assert archive(bench) == ["j"]
    assert len(bench.archive.page(limit=9)) == 1


def test_results_of_an_archived_job_are_read_until_they_expire(
    bench: Bench, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    bench.run_job("j", [b"a", b"bb"], keep_s=900.0)
    bench.run_job("s", [b"ccc"], results_path=str(shared), keep_s=900.0)
    bench.replicate()
    bench.at += 500.0
    archive(bench)
    compacted(bench)
    reader = outputs(bench)
    assert b"".join(reader.result("j", None)) == b"bb"
    assert b"".join(reader.result("j", 0)) == b"a"
    bench.lose("n0")
    assert b"".join(reader.result("s", None)) == b"ccc", "its shared path has it, too"
    with pytest.raises(Exception, match="j/0 is on n0: not up"):
        reader.result("j", 0)
    bench.bring_up("n0")
    assert b"".join(reader.result("j", 0)) == b"a"
    bench.at += 400.0
    assert bench.expire() == [], "no event: the state does not know these jobs"
    assert bench.archive.expired(["j", "s"]) == {"j": True, "s": True}
    assert list(shared.iterdir()) == []


def test_job_archived_while_its_node_is_away_is_read_when_the_node_is_back(bench: Bench) -> None:
    bench.run_job("j", [b"a"])
    bench.lose("n0")
    bench.at += 500.0
    archive(bench)
    compacted(bench)
    bench.bring_up("n0")
    assert b"".join(outputs(bench).result("j", 0)) == b"a"


def test_results_that_cannot_be_removed_have_not_expired_and_hold_up_no_others(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    bench.run_job("stuck", [b"a"], results_path=str(shared), keep_s=600.0)
    bench.run_job("plain", [b"a"], keep_s=600.0)
    bench.replicate()
    bench.at += 500.0
    archive(bench)
    calls = []

    def refused(path: str, job: str, *, user: str) -> None:
        calls.append(job)
        raise OSError("read-only")

    monkeypatch.setattr("headgate.live.data.expiry.remove_shared", refused)
    bench.at += 100.0
    for _ in range(3):
        bench.expire()
    assert bench.archive.expired(["stuck", "plain"]) == {"stuck": False, "plain": True}
    assert calls == ["stuck"]
    monkeypatch.undo()
    bench.at += 600.0
    bench.expire()
    assert bench.archive.expired(["stuck"]) == {"stuck": True}


def test_sweeps_remove_data_of_archived_jobs_only_after_their_expiry(bench: Bench) -> None:
    bench.run_job("kept", [b"a"], keep_s=2000.0)
    bench.run_job("gone", [b"a"], keep_s=600.0)
    bench.at += 500.0
    archive(bench)
    compacted(bench)
    agent = bench.agents["n0"].agent
    agent._store.put("unknown/0", [b"x"])
    for job in ("kept", "unknown"):
        (bench.root / "n0" / "runs" / job / "0.1").mkdir(parents=True)
    bench.at += 100.0
    bench.expire()
    view, report = bench.engine.snapshot(), agent.report()
    unknown = unknown_jobs(view, report)
    assert unknown == ("gone", "kept", "unknown")
    what = leftovers(view, report, (), bench.archive.expired(unknown))
    assert (what.jobs, what.scratch) == (("gone",), ("kept",))
    agent.remove(what, report.at_ns)
    assert [shard.id for shard in agent.report().shards] == ["kept/0", "unknown/0"]


def _membership(bench: Bench) -> Membership:
    membership = Membership(
        root=bench.root, reachable=ReachableNodes(), post=bench.post, now=lambda: bench.at,
        snapshot=bench.engine.snapshot, token="bench", archive=bench.archive,
    )  # fmt: skip
    membership.agents.update(bench.agents)
    return membership


def test_membership_sweeps_archived_jobs_and_asks_the_archive_only_after_changes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.run_job("j", [b"a"], keep_s=600.0)
    bench.run_job("other", [b"a"])
    bench.at += 500.0
    archive(bench)
    compacted(bench)
    membership, agent = _membership(bench), bench.agents["n0"].agent
    asked: list[Any] = []
    expired = bench.archive.expired
    monkeypatch.setattr(bench.archive, "expired", lambda jobs: asked.append(jobs) or expired(jobs))

    async def sweep() -> None:
        membership._sweep(agent.report())
        await asyncio.gather(*membership._sweeps.values())

    for _ in range(3):
        asyncio.run(sweep())
    assert asked == [("j", "other")]
    bench.at += 100.0
    bench.expire()
    asyncio.run(sweep())
    assert [shard.id for shard in agent.report().shards] == ["other/0"]


def test_returning_node_makes_no_rows_for_results_of_archived_jobs(bench: Bench) -> None:
    bench.run_job("j", [b"a"])
    bench.at += 500.0
    archive(bench)
    compacted(bench)
    shards = len(bench.engine.state.names.shards)
    report = bench.agents["n0"].agent.report()
    assert [shard.id for shard in report.shards] == ["j/0"]
    membership = _membership(bench)
    bench.post(membership._found_replicas(report))
    bench.post([membership._joined(bench.reachable.members["n0"], report)])
    assert len(bench.engine.state.names.shards) == shards


def test_expiry_and_copies_continue_when_rows_have_moved(bench: Bench, tmp_path: Path) -> None:
    for number in range(6):
        bench.run_job(f"old{number}", [b"a"], keep_s=5000.0)
    bench.at += 499.0
    bench.run_job("later", [b"a"], keep_s=50.0)
    bench.run_job("copied", [b"a"], result_replicas=2)
    bench.at += 1.0
    assert bench.expire() == []
    assert len(archive(bench)) == 6
    compacted(bench)
    assert "old0" not in bench.engine.state.names.job_rows
    bench.replicate()
    assert bench.holders("copied/0") == ["n0", "n2"]
    bench.at += 50.0
    assert bench.expire() == ["later"]
    assert len(bench.expiry._heap) <= len(hot(bench)), "nothing is kept of jobs that went"


def test_replay_of_the_journal_forgets_the_same_jobs(bench: Bench) -> None:
    bench.run_job("j", [b"a"])
    bench.at += 500.0
    archive(bench)
    (event,) = [event for event in bench.events if isinstance(event, JobsArchived)]
    assert event.jobs == ("j",)
    assert bench.engine.handle(event) == []
    assert bench.engine.stale == 1, "it has been forgotten already"


def test_jobs_stay_and_results_are_kept_while_the_archive_cannot_be_written(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.run_job("first", [b"a"], keep_s=600.0)
    bench.at += 500.0
    assert archive(bench) == ["first"]
    bench.run_job("second", [b"a"])
    bench.at += 500.0
    bench.archive._db.rows("PRAGMA query_only = 1")
    assert archive(bench) == []
    assert bench.expire() == []
    assert hot(bench) == ["second"]
    assert "ended jobs are not archived" in caplog.text
    assert "results of archived jobs do not expire" in caplog.text
    bench.archive._db.rows("PRAGMA query_only = 0")
    assert archive(bench) == ["second"]
    bench.expire()
    assert bench.archive.expired(["first", "second"]) == {"first": True, "second": False}
