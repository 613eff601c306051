"""Logs of bounded size, with real files and a real program: both ends are kept and can be read."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from tests.live.conftest import command, launch_of

from headgate.live.actors.executor import TaskExecutor
from headgate.live.base import log_limit
from headgate.live.base.log_limit import read_from, trim
from headgate.live.base.records import OutcomeKind
from headgate.live.node.run_logs import log_path
from headgate.model import RunId

LIMIT = 1 << 20
LINE = b"%07d\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.touch()
    return path


def _append(path: Path, first: int, count: int) -> None:
    with path.open("ab") as file:
        file.write(b"".join(LINE % number for number in range(first, first + count)))


def _trim(path: Path, limit: int = LIMIT) -> int:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        return trim(descriptor, limit)
    finally:
        os.close(descriptor)


def _read(path: Path, offset: int = 0, piece: int = 100_000) -> bytes:
    found = b""
    with path.open("rb") as file:
        while (read := read_from(file, offset, piece)).data:
            found, offset = found + read.data, read.next_offset
    return found


def _used_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_log_within_its_limit_stays_whole(log: Path) -> None:
    _append(log, 0, LIMIT // 8)
    before = log.read_bytes()
    assert _trim(log) == LIMIT
    assert _read(log) == before


@pytest.mark.parametrize("trims", [1, 7])
def test_log_over_its_limit_keeps_its_first_and_last_part(log: Path, trims: int) -> None:
    total = 5 * LIMIT // 8
    for number in range(trims):
        _append(log, number * (total // trims), total // trims)
        _trim(log)
    assert _used_bytes(log) <= LIMIT + 2 * 4096
    text = _read(log)
    first, mark, last = text.partition(b"\n[headgate: ")
    dropped, _, last = last.partition(b" dropped here, the log was over its limit]\n")
    assert mark
    assert first.startswith(LINE % 0)
    assert last.endswith(LINE % (total // trims * trims - 1))
    assert len(first) >= LIMIT // 2 - 4096
    assert LIMIT // 2 <= len(last) <= LIMIT // 2 + 2 * 4096
    assert dropped in (b"4 MiB", b"4.0 MiB")


def test_reader_that_follows_a_log_learns_what_it_has_missed(log: Path) -> None:
    _append(log, 0, LIMIT // 8)
    with log.open("rb") as file:
        read = read_from(file, 0, LIMIT)
        assert (len(read.data), read.next_offset) == (LIMIT, LIMIT)
        _append(log, LIMIT // 8, 3 * LIMIT // 8)
        _trim(log)
        more = read_from(file, read.next_offset, 100)
    assert more.data.startswith(b"\n[headgate: 2.5 MiB dropped here")
    assert _read(log, more.next_offset).endswith(LINE % (LIMIT // 2 - 1))


def test_reading_beyond_the_end_returns_nothing(log: Path) -> None:
    _append(log, 0, 10)
    with log.open("rb") as file:
        for offset in (80, 81, 1 << 62):
            assert read_from(file, offset, 10) == (b"", offset)


def test_log_on_a_file_system_without_holes_keeps_its_first_part(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_limit, "_punch", lambda *_: False)
    _append(log, 0, LIMIT)
    size = _trim(log)
    _append(log, 7, 1)
    text = _read(log)
    assert size == len(text) - 8 <= LIMIT // 2 + 100
    assert text.startswith(LINE % 0)
    assert text.endswith(
        b"[headgate: 7.5 MiB dropped here, the log was over its limit]\n" + LINE % 7
    )


def test_program_that_writes_without_end_fills_no_disk(tmp_path: Path) -> None:
    size = 60 * LIMIT
    script = f"import os\nfor n in range({size // 65000}):\n    os.write(1, b'%04d\\n' % n * 13107)"
    (tmp_path / "writes.py").write_text(script + "\nos.write(1, b'the end\\n')")
    program = command(f"echo begin; {sys.executable} {tmp_path}/writes.py; echo last")

    async def whole() -> OutcomeKind:
        executor = TaskExecutor(node="n0", root=str(tmp_path), linger_s=600)
        try:
            record = launch_of(program=program, log_limit_bytes=LIMIT)
            await executor.begin([record])
            async with asyncio.timeout(60):
                return (await executor.outcome(record.run)).kind
        finally:
            await executor.close()

    umask = os.umask(0o022)
    try:
        assert asyncio.run(whole()) is OutcomeKind.FINISHED
    finally:
        os.umask(umask)
    log = log_path(tmp_path, "n0", RunId("j", 0, 1))
    assert log.stat().st_size >= size, "all of it was written"
    assert _used_bytes(log) <= LIMIT + 2 * 4096
    text = _read(log)
    assert text.startswith(b"begin\n0000\n")
    assert text.endswith(b"the end\nlast\n")
    assert text.count(b"dropped here") == 1
