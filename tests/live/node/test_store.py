"""A node's shards: complete or absent, durable over restarts, with corruption detected."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import SpecError, WorldError
from headgate.live.node import store as store_module
from headgate.live.node.store import ShardStore


def files_under(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def checksum_of(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


@given(shards=st.dictionaries(st.text(min_size=1, max_size=20), st.binary(max_size=50), max_size=8))
def test_stored_shard_is_found_after_a_restart(shards: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as root:
        store = ShardStore(Path(root))
        for shard_id, data in shards.items():
            store.put(shard_id, [data[:3], data[3:]])
        store = ShardStore(Path(root))
        assert {s.id: (s.size_bytes, s.checksum) for s in store.list()} == {
            shard_id: (len(data), checksum_of(data)) for shard_id, data in shards.items()
        }
        assert [s.id for s in store.list()] == sorted(shards)
        for shard_id, data in shards.items():
            assert store.path(shard_id).read_bytes() == data
            assert store.verify(shard_id)


@pytest.mark.parametrize(
    "shard_id", [".", "..", "../x", "a/b:c", "/etc/passwd", ".incoming", "é%2F"]
)
def test_no_id_leaves_the_root(tmp_path: Path, shard_id: str) -> None:
    root = tmp_path / "root"
    store = ShardStore(root)
    store.put(shard_id, [b"data"])
    assert [s.id for s in store.list()] == [shard_id]
    assert store.path(shard_id).parent.parent == root
    assert store.remove(shard_id)
    assert store.list() == ()
    assert files_under(tmp_path) == []


@pytest.mark.parametrize("shard_id", ["", "x" * 256, "/" * 90])
def test_id_that_is_no_valid_file_name_is_rejected(tmp_path: Path, shard_id: str) -> None:
    with pytest.raises(SpecError, match="1 to 255 bytes"):
        ShardStore(tmp_path).put(shard_id, [b"data"])


def test_a_new_version_replaces_the_old_one(tmp_path: Path) -> None:
    store = ShardStore(tmp_path)
    store.put("a", [b"old"])
    store.put("a", [b"newer"])
    assert store.path("a").read_bytes() == b"newer"
    assert len(files_under(tmp_path)) == 1


def test_concurrent_writers_of_one_shard_leave_one_complete_version(tmp_path: Path) -> None:
    versions = [bytes([number]) * 1000 for number in range(8)]

    def write(data: bytes) -> None:
        store = ShardStore(tmp_path)  # as a process of its own would have it
        for _ in range(10):
            store.put("a", [data[:500], data[500:]])
            assert store.find("a") is not None

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, versions))
    store = ShardStore(tmp_path)
    assert store.verify("a")
    assert store.path("a").read_bytes() in versions
    assert len(files_under(tmp_path)) == 1
    assert store.take_corrupt() == ()


def test_missing_shard_is_reported_as_absent(tmp_path: Path) -> None:
    store = ShardStore(tmp_path)
    assert store.find("a") is None
    assert not store.verify("a")
    assert not store.remove("a")
    with pytest.raises(WorldError) as caught:
        store.path("a")
    assert caught.value.code == "shard_absent"


def test_aborted_put_leaves_the_old_version(tmp_path: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield b"half"
        raise RuntimeError("the source broke")

    store = ShardStore(tmp_path)
    store.put("a", [b"whole"])
    with pytest.raises(RuntimeError, match="source broke"):
        store.put("a", broken())
    assert store.path("a").read_bytes() == b"whole"
    assert len(files_under(tmp_path)) == 1


def test_a_wrong_checksum_stores_nothing(tmp_path: Path) -> None:
    store = ShardStore(tmp_path)
    with pytest.raises(WorldError) as caught:
        store.put("a", [b"data"], expected=lambda: checksum_of(b"other"))
    assert caught.value.code == "shard_corrupt"
    assert files_under(tmp_path) == []
    store.put("a", [b"data"], expected=lambda: checksum_of(b"data"))
    assert store.find("a") is not None


def test_a_flipped_bit_is_found_and_reported_once(tmp_path: Path) -> None:
    store = ShardStore(tmp_path)
    store.put("a/1", [b"good"])
    store.put("a/2", [b"good"])
    assert store.verify("a/1")
    store.path("a/1").write_bytes(b"gooe")
    assert store.find("a/1") is not None  # the size is right: only reading shows the corruption
    assert not store.verify("a/1")
    assert store.find("a/1") is None
    assert [s.id for s in store.list()] == ["a/2"]
    other_process = ShardStore(tmp_path)
    assert other_process.take_corrupt() == ("a/1",)
    assert store.take_corrupt() == ()


def during_measurement(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let another process act between opening and reading a file, once."""
    measure = store_module._measure

    def measure_late(descriptor: int) -> tuple[int, str]:
        monkeypatch.setattr(store_module, "_measure", measure)
        act()
        return measure(descriptor)

    monkeypatch.setattr(store_module, "_measure", measure_late)


def test_corrupt_shard_found_by_two_processes_together_is_dropped_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other_process = ShardStore(tmp_path), ShardStore(tmp_path)
    store.put("s", [b"content"])
    store.path("s").write_bytes(b"CONTENT")
    during_measurement(monkeypatch, lambda: other_process.verify("s"))
    assert not store.verify("s")
    assert store.take_corrupt() == ("s",)


def test_shard_that_replaced_a_corrupt_one_meanwhile_is_not_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other_process = ShardStore(tmp_path), ShardStore(tmp_path)
    store.put("s", [b"content"])
    store.path("s").write_bytes(b"CONTENT")
    during_measurement(monkeypatch, lambda: other_process.put("s", [b"content"]))
    store.verify("s")
    assert store.verify("s")
    assert store.take_corrupt() == ()


def test_corrupt_shard_leaves_no_directory(tmp_path: Path) -> None:
    store = ShardStore(tmp_path)
    store.put("s", [b"content"])
    store.path("s").write_bytes(b"CONTENT")
    assert not store.verify("s")
    assert store.take_corrupt() == ("s",)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".corrupt", ".incoming"]


def test_shard_written_since_is_not_removed(tmp_path: Path) -> None:
    store = ShardStore(tmp_path)
    store.put("s", [b"content"])
    written_ns = store.path("s").stat().st_mtime_ns
    assert not store.remove("s", before_ns=written_ns)
    assert store.find("s") is not None
    assert store.remove("s", before_ns=written_ns + 1)
    assert store.find("s") is None


def test_a_truncated_file_is_absent_without_reading_it(tmp_path: Path) -> None:
    store = ShardStore(tmp_path)
    store.put("a", [b"whole"])
    os.truncate(store.path("a"), 2)
    assert store.list() == ()
    assert store.take_corrupt() == ("a",)
    store.put("a", [b"whole"])
    assert store.verify("a")


def test_a_result_file_is_adopted_by_rename(tmp_path: Path) -> None:
    store = ShardStore(tmp_path / "root")
    result = tmp_path / "result"
    result.write_bytes(b"result")
    inode = result.stat().st_ino
    shard = store.adopt("job/3", result)
    assert (shard.size_bytes, shard.checksum) == (6, checksum_of(b"result"))
    assert store.path("job/3").stat().st_ino == inode
    assert not result.exists()


def test_a_result_on_another_disk_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ShardStore(tmp_path / "root")
    result = tmp_path / "result"
    result.write_bytes(b"result")
    rename = Path.rename

    def across_disks(self: Path, target: Path) -> Path:
        if self == result:
            raise OSError(errno.EXDEV, "another disk")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", across_disks)
    store.adopt("job/3", result)
    assert store.path("job/3").read_bytes() == b"result"
    assert not result.exists()


def test_target_of_a_linked_result_is_not_moved(tmp_path: Path) -> None:
    store = ShardStore(tmp_path / "root")
    target, result = tmp_path / "target", tmp_path / "result"
    target.write_bytes(b"not ours")
    result.symlink_to(target)
    store.adopt("job/3", result)
    target.write_bytes(b"changed")
    assert store.path("job/3").read_bytes() == b"not ours"
    assert not result.is_symlink()


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.ENOSPC, "disk_full"), (errno.EDQUOT, "disk_full"), (errno.EIO, "shard_store")],
)
def test_failing_disk_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: str
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    store = ShardStore(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(WorldError) as caught:
            store.put("a", [b"data"])
    assert caught.value.code == code
    assert store.find("a") is None
    assert files_under(tmp_path) == []


FILL = """
import sys
from pathlib import Path
from headgate.base.errors import WorldError
from headgate.live.node import store as store_module
from headgate.live.node.store import ShardStore
store = ShardStore(Path(sys.argv[1]))
store.put("small", [bytes(1 << 16)])
try:
    store.put("large", (bytes(1 << 16) for _ in range(64)))
except WorldError as error:
    print(error.code, store.verify("small"), store.find("large"))
print(sum(1 for path in store._incoming.iterdir()))
"""


def test_a_disk_that_really_is_full(tmp_path: Path) -> None:
    """On a file system of 1 MiB, mounted in a name space of its own."""
    mount = f'mount -t tmpfs -o size=1m none "{tmp_path}" && exec "$@"'
    inner = [sys.executable, "-c", FILL, str(tmp_path)]
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine lets us mount nothing")
    done = subprocess.run([*command, *inner], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["disk_full", "True", "None", "0"]


WRITE_FOREVER = """
import sys, time
from pathlib import Path
from headgate.live.node import store as store_module
from headgate.live.node.store import ShardStore
def chunks():
    yield b"half"
    print("writing", flush=True)
    time.sleep(600)
ShardStore(Path(sys.argv[1])).put("a", chunks())
"""


def test_files_of_a_killed_writer_are_removed_but_not_those_of_a_living_one(
    tmp_path: Path,
) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITE_FOREVER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        ShardStore(tmp_path)
        assert len(files_under(tmp_path)) == 1
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
    store = ShardStore(tmp_path)
    assert files_under(tmp_path) == []
    assert store.list() == ()


@pytest.mark.parametrize("problem", [0, errno.EXDEV, errno.EOPNOTSUPP])
def test_copy_is_made_by_the_kernel_where_the_file_system_lets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: int
) -> None:
    store, content = ShardStore(tmp_path / "store"), bytes(range(256)) * 20_000
    store.put("a", [content])
    usual, copied = os.copy_file_range, list[int]()

    def copy(source: int, to: int, count: int) -> int:
        if problem:
            raise OSError(problem, "it cannot")
        copied.append(usual(source, to, min(count, 1 << 20)))
        return copied[-1]

    monkeypatch.setattr(os, "copy_file_range", copy)
    assert store.provide("a", tmp_path / "copy", uid=0) == len(content)
    assert (tmp_path / "copy").read_bytes() == content
    assert sum(copied) == (0 if problem else len(content))


@pytest.mark.parametrize("problem", [0, errno.EXDEV])
def test_full_disk_fails_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: int
) -> None:
    store = ShardStore(tmp_path / "store")
    store.put("a", [b"data"])

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    def copy(*_: object) -> None:
        raise OSError(problem or errno.ENOSPC, "it cannot")

    monkeypatch.setattr(store_module, "write_whole", full)
    monkeypatch.setattr(os, "copy_file_range", copy)
    with pytest.raises(WorldError) as caught:
        store.provide("a", tmp_path / "copy", uid=0)
    assert caught.value.code == "disk_full"
    assert store.verify("a")
