"""Results on a path that all nodes share: complete or absent, and paths that do not respond."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.live.conftest import ME
from tests.live.data.test_results import Bench, bench

from headgate.base.errors import WorldError
from headgate.live.node.shared import find_shared, keep_shared, remove_shared
from headgate.model import Shard
from headgate.state import TaskState

__all__ = ["bench"]


def test_incomplete_shared_file_is_not_used(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"content")
    keep_shared(str(tmp_path), "j-1/4.2", source, user=ME)
    assert (tmp_path / "j-1" / "4.2").read_bytes() == b"content"
    whole = Shard(id="j-1/4.2", size_bytes=7)
    assert find_shared(str(tmp_path), whole, user=ME) == tmp_path / "j-1" / "4.2"
    assert find_shared(str(tmp_path), Shard(id="j-1/4.2", size_bytes=8), user=ME) is None
    assert find_shared(str(tmp_path), Shard(id="j-1/4.3", size_bytes=7), user=ME) is None


def test_shared_copy_that_fails_leaves_no_file(tmp_path: Path) -> None:
    source = tmp_path / "source"
    with pytest.raises(WorldError):
        keep_shared(str(tmp_path), "j/0", source, user=ME)
    assert list(tmp_path.iterdir()) == []
    source.touch()
    with pytest.raises(WorldError) as refused:
        keep_shared(str(tmp_path / "missing"), "j/0", source, user=ME)
    assert refused.value.code == "shard_store"
    assert not (tmp_path / "missing").exists()


def test_files_of_others_on_the_shared_path_stay(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.touch()
    for shard in ("j/0", "j/1.0", "k/0"):
        keep_shared(str(tmp_path), shard, source, user=ME)
    (tmp_path / "j" / ".draft-of-a-node-that-died").touch()
    (tmp_path / "j" / "notes.txt").touch()
    for _ in range(2):
        remove_shared(str(tmp_path), "j", user=ME)
    remove_shared(str(tmp_path), "never", user=ME)
    left = sorted(str(f.relative_to(tmp_path)) for f in tmp_path.rglob("*") if f.is_file())
    assert left == ["j/notes.txt", "k/0", "source"]


def test_shared_directory_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "0").touch()
    (tmp_path / "j").symlink_to(elsewhere)
    remove_shared(str(tmp_path), "j", user=ME)
    assert (elsewhere / "0").exists()


def test_copies_to_a_path_that_does_not_respond_leave_room_for_those_of_other_users(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung, responds = threading.Event(), threading.Event()
    started = []

    def share(shard: str, *_: Any) -> None:
        started.append(shard)
        hung.set()
        assert responds.wait(60)

    monkeypatch.setattr(bench.agents["n0"].agent, "share_result", share)
    for number in range(3):
        path = str(tmp_path)
        bench.run_job(f"stuck-{number}", [b"a"] * 4, user="other", results_path=path)
    bench.run_job("j", [b"a"] * 4, result_replicas=2)

    async def look() -> None:
        bench.replicator._look()
        await asyncio.to_thread(hung.wait, 60)
        while any(len(bench.holders(f"j/{number}")) < 2 for number in range(4)):
            bench.replicator._look()
            await asyncio.sleep(0.01)
        assert len(started) == 3, "as many as nodes"
        responds.set()

    asyncio.run(asyncio.wait_for(look(), 60))


def test_check_of_a_path_that_does_not_respond_delays_no_check_for_another_user(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for user in ("stuck", "fine"):
        (tmp_path / user).mkdir()
        path = str(tmp_path / user)
        bench.run_job(user, [b"a", None], user=ME if user == "fine" else "other", results_path=path)
    monkeypatch.setattr(bench.agents["n0"].agent, "share_result", lambda *_: None)
    bench.replicate()
    responds = threading.Event()

    def find(path: str, *arguments: Any, **options: Any) -> Path | None:
        if path.endswith("stuck"):
            assert responds.wait(60)
        return None

    monkeypatch.setattr("headgate.live.data.replication.find_shared", find)
    bench.lose("n0")

    async def look() -> None:
        states, rows = bench.engine.state.tasks.state, {"stuck": 0, "fine": 2}
        bench.replicator._look()
        while states[rows["fine"]] != TaskState.WAITING:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert states[rows["stuck"]] == TaskState.FINISHED
        responds.set()
        while bench.replicator._checks:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert states[rows["stuck"]] == TaskState.WAITING

    asyncio.run(asyncio.wait_for(look(), 60))
