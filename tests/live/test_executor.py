"""Executors with real worker processes, without Ray: idle workers, stops, kept outcomes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import IO, Any

import psutil
import pytest
from tests.live.conftest import ME, command, launch_of

from headgate.live.executor import Executor
from headgate.live.records import LaunchRecord, OutcomeKind, OutcomeRecord
from headgate.model import ProgramType, RunId, Stage, TaskProgram

PATIENCE_S = 60.0


@pytest.fixture
def run(
    tmp_path: Path,
) -> Iterator[Callable[[Callable[[Executor], Coroutine[Any, Any, Any]]], Any]]:
    """Run steps with an executor, and close it."""

    def run_steps(steps: Callable[[Executor], Coroutine[Any, Any, Any]]) -> Any:
        async def whole() -> Any:
            executor = Executor(job="j", node="n0", root=str(tmp_path), linger_s=600)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    return await steps(executor)
            finally:
                await executor.close()
                assert (executor._idle, executor._ending) == ([], {})

        return asyncio.run(whole())

    before = os.umask(0o022)
    yield run_steps
    os.umask(before)  # executors set one of their own


async def _outcomes(executor: Executor, *records: LaunchRecord) -> list[OutcomeRecord]:
    await executor.begin(records)
    return list(await asyncio.gather(*(executor.outcome(record.run) for record in records)))


def test_run_succeeds_although_idle_workers_are_ended_while_it_clears_its_gpus(run: Any) -> None:
    async def steps(executor: Executor) -> OutcomeRecord:
        kinds = await _outcomes(executor, launch_of(0, (0,)), launch_of(1, (1,)))
        assert [outcome.kind for outcome in kinds] == [OutcomeKind.FINISHED] * 2
        first, second = executor._idle
        other = command("true", envs={"OTHER": "settings"})
        ended = first.end

        async def end_both() -> None:
            executor._end_idle(second, second.runs)  # its time is over just now
            await ended()

        first.end = end_both  # type: ignore[method-assign]
        (outcome,) = await _outcomes(executor, launch_of(2, (0, 1), program=other))
        return outcome

    assert run(steps).kind is OutcomeKind.FINISHED


def test_run_starts_only_after_the_workers_that_held_its_gpus_have_ended(run: Any) -> None:
    async def steps(executor: Executor) -> list[bool]:
        await _outcomes(executor, launch_of(0, (0,)))
        (worker,) = executor._idle
        executor._end_idle(worker, worker.runs)
        await _outcomes(executor, launch_of(1, (0,)))
        return [worker.alive, worker in executor._ending]

    assert run(steps) == [False, False]


def test_ended_runs_are_forgotten_on_request_and_running_ones_are_not(run: Any) -> None:
    async def steps(executor: Executor) -> list[int]:
        await _outcomes(executor, *(launch_of(number) for number in range(4)))
        await executor.begin([launch_of(9)])
        await executor.forget([RunId("j", number, 1) for number in (0, 1, 2, 3, 9, 77)])
        return [run.ordinal for run in executor._runs]

    assert run(steps) == [9]


def test_run_that_was_stopped_before_its_launch_came_never_runs(run: Any) -> None:
    async def steps(executor: Executor) -> OutcomeRecord:
        await executor.stop([RunId("j", 5, 1)])
        (outcome,) = await _outcomes(executor, launch_of(5))
        return outcome

    assert run(steps).kind is OutcomeKind.STOPPED


def _function(directory: Path, statements: str) -> TaskProgram:
    """Write a function of these statements, and return the program that calls it."""
    (directory / "written.py").write_text(f"import os, sys\ndef main(task):\n    {statements}\n")
    stage = Stage(first=0, count=1, program_type=ProgramType.FUNCTION, run="written:main")
    return TaskProgram(user=ME, stage=stage, index=0, envs={"PYTHONPATH": str(directory)})


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (40, "signal 40")])
def test_command_that_a_signal_ends_fails_with_its_name(run: Any, number: int, name: str) -> None:
    async def steps(executor: Executor) -> OutcomeRecord:
        program = command(f"kill -{number} $$")
        return (await _outcomes(executor, launch_of(0, program=program)))[0]

    outcome = run(steps)
    assert (outcome.kind, outcome.message) == (
        OutcomeKind.FAILED,
        f"the command was ended by {name}",
    )


def test_message_of_a_failure_is_bounded(run: Any, tmp_path: Path) -> None:
    program = _function(tmp_path, "raise ValueError('long ' * 1_000_000)")

    async def steps(executor: Executor) -> OutcomeRecord:
        return (await _outcomes(executor, launch_of(0, program=program)))[0]

    message = run(steps).message
    assert message.startswith("ValueError: long long ")
    assert len(message) < 10_000


def test_worker_that_is_stopped_while_it_starts_leaves_no_process(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps(executor: Executor) -> list[psutil.Process]:
        connecting = asyncio.Event()

        async def hang(_: object, pipe: IO[bytes]) -> None:
            with pipe:
                connecting.set()
                await asyncio.Event().wait()

        monkeypatch.setattr(asyncio.get_running_loop(), "connect_read_pipe", hang)
        record = launch_of(0)
        await executor.begin([record])
        await connecting.wait()
        await executor.stop([record.run])
        assert (await executor.outcome(record.run)).kind is OutcomeKind.STOPPED
        return psutil.Process().children(recursive=True)

    assert run(steps) == []


def test_worker_that_floods_its_response_leaves_no_open_pipe(run: Any, tmp_path: Path) -> None:
    flood = "while True: os.write(int(sys.argv[2]), bytes(1 << 16))"
    program = _function(tmp_path, flood)

    def pipes() -> int:
        found = [Path("/proc/self/fd", str(fd)) for fd in range(256)]
        return sum(str(fd.readlink()).startswith("pipe:") for fd in found if fd.is_symlink())

    async def steps(executor: Executor) -> OutcomeRecord:
        before = pipes()
        (outcome,) = await _outcomes(executor, launch_of(program=program))
        while pipes() > before:  # noqa: ASYNC110  # the steps are bounded
            await asyncio.sleep(0.01)
        return outcome

    assert run(steps).kind is OutcomeKind.FAILED
