"""Job files are read in processes of their own, small and large ones apart, users in turn."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from headgate.base.errors import HeadgateError, SpecError
from headgate.live.controller.reader import JobReader

JOB = "{name: work, run: 'true'}"
ME, OTHER = "me", "other"


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(HeadgateError) as caught:
        call()
    return caught.value.code


@pytest.fixture
def reader() -> Iterator[JobReader]:
    reader = JobReader(limit_cpu_s=1, limit_bytes=512 << 20)
    yield reader
    reader.close()


@pytest.mark.parametrize("small_characters", [1000, 1 << 30])
def test_file_that_takes_too_long_is_rejected_and_the_next_one_is_read(
    reader: JobReader, monkeypatch: pytest.MonkeyPatch, small_characters: int
) -> None:
    monkeypatch.setattr("headgate.live.controller.reader._SMALL_CHARACTERS", small_characters)
    slow = "run: x\npriority: [" + "[1], " * 800_000 + "]\n"
    assert code_of(lambda: reader.read(slow, user=ME)) == "too_large"
    assert reader.read(JOB, user=ME).name == "work"


def test_file_that_takes_too_much_memory_is_rejected() -> None:
    reader = JobReader(limit_cpu_s=100, limit_bytes=32 << 20)
    try:
        assert (
            code_of(lambda: reader.read("a: [" + "1, " * 500_000 + "]\n", user=ME)) == "too_large"
        )
        assert reader.read(JOB, user=ME).name == "work"
    finally:
        reader.close()


def test_a_small_file_does_not_wait_for_a_large_one() -> None:
    reader = JobReader()
    with ThreadPoolExecutor(1) as threads:
        large = threads.submit(reader.read, "a: [" + "1, " * 600_000 + "]\n", user=ME)
        assert reader.read(JOB, user=ME).name == "work"
        assert not large.done()
        assert isinstance(large.exception(), SpecError)
    reader.close()


def test_users_take_turns_in_reading(reader: JobReader, monkeypatch: pytest.MonkeyPatch) -> None:
    order, opened = list[str](), threading.Semaphore(0)

    def read(text: str) -> SpecError:
        order.append(text)
        assert opened.acquire(timeout=60)
        return SpecError("read")

    monkeypatch.setattr("headgate.live.controller.reader._SMALL_CHARACTERS", 0)
    monkeypatch.setattr(reader, "_read_large", read)
    with ThreadPoolExecutor(8) as threads:
        calls = []
        for number, user in enumerate([ME] * 5 + [OTHER]):
            calls.append(threads.submit(reader.read, f"{user}'s", user=user))
            until_waiting(reader, number)
        for _ in calls:
            opened.release()
    assert {str(call.exception()) for call in calls} == {"read"}
    assert order == [f"{ME}'s", f"{OTHER}'s", *[f"{ME}'s"] * 4]


def until_waiting(reader: JobReader, count: int) -> None:
    end = time.monotonic() + 60
    slots = reader._large
    while slots._held.total() != 1 or sum(map(len, slots._waiting.values())) != count:
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_reading_process_that_was_killed_is_replaced(reader: JobReader) -> None:
    reader.read(JOB, user=ME)
    assert reader._kept is not None
    reader._kept._process.kill()
    reader._kept._process.wait()
    assert reader.read(JOB, user=ME).name == "work"


def test_problems_are_returned_with_their_positions(reader: JobReader) -> None:
    with pytest.raises(SpecError) as found:
        reader.read("nmae: x\n", user=ME)
    assert [(p.path, p.line) for p in found.value.problems] == [("nmae", 1), ("run", 1)]
    assert "did you mean 'name'?" in found.value.problems[0].hint


def test_reading_processes_end_with_the_process_that_started_them() -> None:
    program = (
        "import os\nfrom headgate.live.controller.reader import JobReader\n"
        f"reader = JobReader()\nreader.read({JOB!r}, user='x')\n"
        "print(reader._kept._process.pid, flush=True)\nos.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    pid = int(done.stdout)
    end = time.monotonic() + 60
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end, "it lives on"
        time.sleep(0.02)
