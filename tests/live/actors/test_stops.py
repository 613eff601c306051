"""Stops of runs with real worker processes, without Ray: notice, grace period, kill."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.live.conftest import command, launch_of
from tests.live.notice import IGNORES, SAVES, program, seen

from headgate.live.actors.executor import TaskExecutor
from headgate.live.base.records import LaunchRecord, OutcomeKind, OutcomeRecord
from headgate.model import ProgramType, RunId, Stage

PATIENCE_S = 60.0

Run = Callable[[Callable[[TaskExecutor], Coroutine[Any, Any, Any]]], Any]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Run steps with an executor, and close it; no process of the program may be left."""

    def run_steps(steps: Callable[[TaskExecutor], Coroutine[Any, Any, Any]]) -> Any:
        async def whole() -> Any:
            executor = TaskExecutor(node="n0", root=str(tmp_path), linger_s=600)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    return await steps(executor)
            finally:
                await executor.close()

        return asyncio.run(whole())

    yield run_steps
    program = f"{tmp_path}/program.py"
    assert not [p for p in psutil.process_iter(["cmdline"]) if program in (p.info["cmdline"] or ())]


def launch(tmp_path: Path, script: str, **fields: Any) -> LaunchRecord:
    """Return a launch of a Python script that may append to the file `seen`."""
    started = command(f"{sys.executable} {program(tmp_path, script)}; true")
    return launch_of(**{"program": started, "grace_s": 30.0, **fields})


async def begun(tmp_path: Path, executor: TaskExecutor, record: LaunchRecord) -> None:
    await executor.begin([record])
    while not seen(tmp_path):  # noqa: ASYNC110  # a file
        await asyncio.sleep(0.02)


def test_stopped_program_gets_notice_and_time_to_save(run: Run, tmp_path: Path) -> None:
    async def steps(executor: TaskExecutor) -> OutcomeRecord:
        record = launch(tmp_path, SAVES)
        await begun(tmp_path, executor, record)
        await executor.stop([record.run])
        await executor.stop([record.run])  # as a restarted master does
        outcome = await executor.outcome(record.run)
        assert executor._idle == [], "its worker is not used again"
        return outcome

    outcome = run(steps)
    assert (outcome.kind, outcome.message) == (OutcomeKind.STOPPED, "it ended after the notice")
    assert seen(tmp_path) == ["begun", "notice", "saved"]


def test_result_that_comes_after_the_notice_is_void(run: Run, tmp_path: Path) -> None:
    async def steps(executor: TaskExecutor) -> OutcomeRecord:
        record = launch(tmp_path, SAVES)
        run_it = f"{sys.executable} {tmp_path}/program.py & wait; echo done > {{output}}"
        record = replace(record, program=command(f"trap '' TERM; {run_it}"))
        await begun(tmp_path, executor, record)
        await executor.stop([record.run])
        return await executor.outcome(record.run)

    outcome = run(steps)
    assert (outcome.kind, outcome.output_bytes) == (OutcomeKind.STOPPED, 0)


def test_program_that_ignores_the_notice_is_killed_after_the_grace_period(
    run: Run, tmp_path: Path
) -> None:
    async def steps(executor: TaskExecutor) -> OutcomeRecord:
        record = launch(tmp_path, IGNORES, grace_s=1.0)
        await begun(tmp_path, executor, record)
        stopped_s = time.monotonic()
        await executor.stop([record.run])
        outcome = await executor.outcome(record.run)
        assert time.monotonic() - stopped_s >= 1.0
        return outcome

    outcome = run(steps)
    assert outcome.kind is OutcomeKind.STOPPED
    assert outcome.message == "it was killed 1.0 s after the notice"
    assert seen(tmp_path) == ["begun", "notice"]


def test_the_shorter_grace_period_of_a_stop_counts(run: Run, tmp_path: Path) -> None:
    async def steps(executor: TaskExecutor) -> OutcomeRecord:
        record = launch(tmp_path, IGNORES, grace_s=600.0)
        await begun(tmp_path, executor, record)
        await executor.stop([record.run], most_s=0.5)
        await executor.stop([record.run], most_s=600.0)  # as a later one may say
        return await executor.outcome(record.run)

    assert run(steps).message == "it was killed 0.5 s after the notice"


def test_stop_without_notice_ends_the_grace_period(run: Run, tmp_path: Path) -> None:
    async def steps(executor: TaskExecutor) -> OutcomeRecord:
        record = launch(tmp_path, IGNORES, grace_s=600.0)
        await begun(tmp_path, executor, record)
        await executor.stop([record.run])
        while "notice" not in seen(tmp_path):  # noqa: ASYNC110  # a file
            await asyncio.sleep(0.02)
        await executor.stop([record.run], now=True)
        return await executor.outcome(record.run)

    outcome = run(steps)
    assert outcome.kind is OutcomeKind.STOPPED
    assert outcome.message == "it was killed in its grace period"


@pytest.mark.parametrize("how", ["no grace", "now"])
def test_run_without_a_grace_period_is_killed_immediately(
    run: Run, tmp_path: Path, how: str
) -> None:
    async def steps(executor: TaskExecutor) -> OutcomeRecord:
        record = launch(tmp_path, IGNORES, grace_s=0.0 if how == "no grace" else 600.0)
        await begun(tmp_path, executor, record)
        await executor.stop([record.run], now=how == "now")
        return await executor.outcome(record.run)

    assert run(steps).kind is OutcomeKind.STOPPED
    assert seen(tmp_path) == ["begun"]


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.1, 0.2, 0.4])
def test_program_that_is_stopped_while_it_starts_gets_the_notice(run: Run, after_s: float) -> None:
    async def steps(executor: TaskExecutor) -> OutcomeRecord:
        record = launch_of(program=command("sleep 600"), grace_s=600.0)
        await executor.begin([record])
        while executor._runs[record.run].worker is None:  # noqa: ASYNC110  # it starts
            await asyncio.sleep(0)
        await asyncio.sleep(after_s)
        await executor.stop([record.run])
        return await executor.outcome(record.run)

    assert run(steps).message == "it ended after the notice"


def test_program_that_starts_while_its_processes_are_listed_gets_the_notice(
    run: Run, tmp_path: Path
) -> None:
    async def steps(executor: TaskExecutor) -> OutcomeRecord:
        record = launch(tmp_path, SAVES)
        await begun(tmp_path, executor, record)
        worker = executor._runs[record.run].worker
        assert worker is not None
        listed = worker._notified
        before = iter([listed()[:1]])  # as listed before the worker has started the program
        worker._notified = lambda: next(before, None) or listed()  # type: ignore[method-assign]
        await executor.stop([record.run])
        return await executor.outcome(record.run)

    assert run(steps).message == "it ended after the notice"
    assert seen(tmp_path) == ["begun", "notice", "saved"]


def test_stopped_function_gets_the_notice(run: Run, tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text(
        "import signal, time\n"
        "def run(task):\n"
        "    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(SystemExit))\n"
        f"    seen = open({str(tmp_path / 'seen')!r}, 'a', 1)\n"
        "    try:\n"
        "        seen.write('begun ')\n"
        "        seen.flush()\n"
        "        time.sleep(600)\n"
        "    finally:\n"
        "        seen.write('saved')\n"
    )
    stage = Stage(first=0, count=1, program_type=ProgramType.FUNCTION, run="waits:run")
    program = replace(command("true"), stage=stage, envs={"PYTHONPATH": str(tmp_path)})

    async def steps(executor: TaskExecutor) -> OutcomeRecord:
        record = launch_of(program=program)
        await begun(tmp_path, executor, record)
        await executor.stop([record.run])
        return await executor.outcome(record.run)

    assert run(steps).kind is OutcomeKind.STOPPED
    assert seen(tmp_path) == ["begun", "saved"]


def test_run_that_is_stopped_while_it_reads_has_no_grace_period(run: Run) -> None:
    async def steps(executor: TaskExecutor) -> OutcomeRecord:
        reading = asyncio.Event()

        async def hang(*_: object) -> list[Path]:
            reading.set()
            await asyncio.Event().wait()
            return []

        executor._read_shards = hang  # type: ignore[method-assign]  # reading never ends
        record = launch_of(grace_s=600.0)
        await executor.begin([record])
        await reading.wait()
        await executor.stop([record.run])
        return await executor.outcome(record.run)

    outcome = run(steps)
    assert (outcome.kind, outcome.message) == (OutcomeKind.STOPPED, "its program had not started")


def test_program_that_had_ended_before_its_stop_may_store_its_result(run: Run) -> None:
    async def steps(executor: TaskExecutor) -> OutcomeRecord:
        keep, storing = executor._keep_result, asyncio.Event()
        loop = asyncio.get_running_loop()

        def slowly(*arguments: Any) -> tuple[int, ...]:
            loop.call_soon_threadsafe(storing.set)
            time.sleep(1)
            return keep(*arguments)

        executor._keep_result = slowly  # type: ignore[method-assign]  # a slow disk
        record = launch_of()
        await executor.begin([record])
        await storing.wait()
        await executor.stop([record.run])
        return await executor.outcome(record.run)

    assert run(steps).kind is OutcomeKind.FINISHED


def test_executor_that_closes_gives_no_grace_period(run: Run, tmp_path: Path) -> None:
    async def steps(executor: TaskExecutor) -> OutcomeRecord:
        record = launch(tmp_path, IGNORES, grace_s=600.0)
        await begun(tmp_path, executor, record)
        await executor.close()
        return await executor.outcome(RunId("j", 0, 1))

    assert run(steps).kind is OutcomeKind.STOPPED
