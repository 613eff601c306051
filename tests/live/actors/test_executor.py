"""Executors with real worker processes, without Ray: idle workers, stops, kept outcomes."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import psutil
import pytest
from tests.live.conftest import ME, command, launch_of
from tests.live.notice import IGNORES, SAVES, program, seen

from headgate.live.actors.executor import TaskExecutor
from headgate.live.base.records import LaunchRecord, OutcomeKind, OutcomeRecord
from headgate.live.node.run_files import content_of, written_by
from headgate.live.node.scratch import make_scratch, remove_scratch
from headgate.live.run import run_meter
from headgate.live.run.over_notes import noted, notes_directory
from headgate.model import Demand, ProgramType, RunId, Stage, TaskProgram
from headgate.protocol import FailureKind

PATIENCE_S = 60.0
GRACE_S = 3.0  # from the notice to a run at its time limit to its end


@pytest.fixture
def run(
    tmp_path: Path,
) -> Iterator[Callable[[Callable[[TaskExecutor], Coroutine[Any, Any, Any]]], Any]]:
    """Run steps with an executor, and close it."""

    def run_steps(steps: Callable[[TaskExecutor], Coroutine[Any, Any, Any]]) -> Any:
        async def whole() -> Any:
            executor = TaskExecutor(node="n0", root=str(tmp_path), linger_s=600)
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


async def _outcomes(executor: TaskExecutor, *records: LaunchRecord) -> list[OutcomeRecord]:
    await executor.begin(records)
    return list(await asyncio.gather(*(executor.outcome(record.run) for record in records)))


def test_run_succeeds_although_idle_workers_are_ended_while_it_clears_its_gpus(run: Any) -> None:
    async def steps(executor: TaskExecutor) -> OutcomeRecord:
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
    async def steps(executor: TaskExecutor) -> list[bool]:
        await _outcomes(executor, launch_of(0, (0,)))
        (worker,) = executor._idle
        executor._end_idle(worker, worker.runs)
        await _outcomes(executor, launch_of(1, (0,)))
        return [worker.alive, worker in executor._ending]

    assert run(steps) == [False, False]


def test_ended_runs_are_forgotten_on_request_and_running_ones_are_not(run: Any) -> None:
    async def steps(executor: TaskExecutor) -> list[int]:
        await _outcomes(executor, *(launch_of(number) for number in range(4)))
        await executor.begin([launch_of(9)])
        await executor.forget([RunId("j", number, 1) for number in (0, 1, 2, 3, 9, 77)])
        return [run.ordinal for run in executor._runs]

    assert run(steps) == [9]


def test_run_that_was_stopped_before_its_launch_came_never_runs(run: Any) -> None:
    async def steps(executor: TaskExecutor) -> OutcomeRecord:
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
    async def steps(executor: TaskExecutor) -> OutcomeRecord:
        program = command(f"kill -{number} $$")
        return (await _outcomes(executor, launch_of(0, program=program)))[0]

    outcome = run(steps)
    assert (outcome.kind, outcome.message) == (
        OutcomeKind.FAILED,
        f"the command was ended by {name}",
    )
    assert outcome.usage.exit_status == -number


def test_outcomes_have_the_exit_status_of_the_program(run: Any, tmp_path: Path) -> None:
    called = _function(tmp_path, "sys.exit(4)")

    async def steps(executor: TaskExecutor) -> list[OutcomeRecord]:
        programs = (command("exit 3"), command("true"), called)
        return [(await _outcomes(executor, launch_of(n, program=p)))[0]
                for n, p in enumerate(programs)]  # fmt: skip

    assert [outcome.usage.exit_status for outcome in run(steps)] == [3, 0, 4]


def test_message_of_a_failure_is_bounded(run: Any, tmp_path: Path) -> None:
    program = _function(tmp_path, "raise ValueError('long ' * 1_000_000)")

    async def steps(executor: TaskExecutor) -> OutcomeRecord:
        return (await _outcomes(executor, launch_of(0, program=program)))[0]

    message = run(steps).message
    assert message.startswith("ValueError: long long ")
    assert len(message) < 10_000


def test_worker_that_is_stopped_while_it_starts_leaves_no_process(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps(executor: TaskExecutor) -> list[psutil.Process]:
        connecting = asyncio.Event()

        async def hang(_: object, pipe: IO[bytes]) -> None:
            with pipe:
                connecting.set()
                await asyncio.Event().wait()

        monkeypatch.setattr(asyncio.get_running_loop(), "connect_read_pipe", hang)
        record, others = launch_of(0), set(psutil.Process().children(recursive=True))
        await executor.begin([record])
        await connecting.wait()
        await executor.stop([record.run])
        assert (await executor.outcome(record.run)).kind is OutcomeKind.STOPPED
        return [p for p in psutil.Process().children(recursive=True) if p not in others]

    assert run(steps) == []


def test_worker_that_floods_its_response_leaves_no_open_pipe(run: Any, tmp_path: Path) -> None:
    flood = "while True: os.write(int(sys.argv[2]), bytes(1 << 16))"
    program = _function(tmp_path, flood)

    def pipes() -> int:
        found = [Path("/proc/self/fd", str(fd)) for fd in range(256)]
        return sum(str(fd.readlink()).startswith("pipe:") for fd in found if fd.is_symlink())

    async def steps(executor: TaskExecutor) -> OutcomeRecord:
        before = pipes()
        (outcome,) = await _outcomes(executor, launch_of(program=program))
        while pipes() > before:  # noqa: ASYNC110  # the steps are bounded
            await asyncio.sleep(0.01)
        return outcome

    assert run(steps).kind is OutcomeKind.FAILED


# ------------------------------------------------------------------------------- time limits


def _limited(tmp_path: Path, script: str, time_limit_s: float = 2.0) -> LaunchRecord:
    """Return a launch of a Python script that may append to the file `seen`."""
    started = command(f"{sys.executable} {program(tmp_path, script)}; true")
    return launch_of(program=started, time_limit_s=time_limit_s, grace_s=GRACE_S)


def test_program_over_its_time_limit_gets_notice_and_time_to_save(run: Any, tmp_path: Path) -> None:
    async def steps(executor: TaskExecutor) -> OutcomeRecord:
        (outcome,) = await _outcomes(executor, _limited(tmp_path, SAVES))
        assert executor._idle == [], "its worker is not used again"
        return outcome

    outcome = run(steps)
    assert (outcome.kind, outcome.failure) == (OutcomeKind.FAILED, FailureKind.TIMED_OUT)
    assert outcome.message == "it ended after the notice"
    assert seen(tmp_path) == ["begun", "notice", "saved"], "although the shell ended before it"


def test_program_that_ignores_the_notice_is_killed_after_the_grace_period(
    run: Any, tmp_path: Path
) -> None:
    async def steps(executor: TaskExecutor) -> OutcomeRecord:
        began_s = time.monotonic()
        (outcome,) = await _outcomes(executor, _limited(tmp_path, IGNORES))
        assert time.monotonic() - began_s >= 2.0 + GRACE_S
        return outcome

    outcome = run(steps)
    assert (outcome.kind, outcome.failure) == (OutcomeKind.FAILED, FailureKind.TIMED_OUT)
    assert outcome.message == "it was killed 3.0 s after the notice"
    assert seen(tmp_path) == ["begun", "notice"]
    assert not [
        p
        for p in psutil.process_iter(["cmdline"])
        if f"{tmp_path}/program.py" in (p.info["cmdline"] or ())
    ]


def test_run_gets_notice_before_its_limit_when_another_member_of_its_gang_is_over_it(
    run: Any, tmp_path: Path
) -> None:
    async def steps(executor: TaskExecutor) -> OutcomeRecord:
        launch = _limited(tmp_path, SAVES, 1e9)
        await executor.begin([launch])
        while not seen(tmp_path):  # noqa: ASYNC110  # a file
            await asyncio.sleep(0.05)
        assert not await executor.over_limit([launch.run])
        await executor.expire([launch.run])
        outcome = await executor.outcome(launch.run)
        assert await executor.over_limit([launch.run])
        assert not await executor.over_limit([RunId("j", 0, 2)])
        return outcome

    assert run(steps).failure is FailureKind.TIMED_OUT
    assert seen(tmp_path) == ["begun", "notice", "saved"]


def test_stop_during_the_grace_period_is_a_stop(run: Any, tmp_path: Path) -> None:
    async def steps(executor: TaskExecutor) -> OutcomeRecord:
        launch = _limited(tmp_path, IGNORES)
        await executor.begin([launch])
        while not seen(tmp_path):  # noqa: ASYNC110  # a file
            await asyncio.sleep(0.05)
        await executor.stop([launch.run])
        return await executor.outcome(launch.run)

    assert run(steps).kind is OutcomeKind.STOPPED


def test_function_gets_the_notice(run: Any, tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text(
        "import signal, time\n"
        "def run(task):\n"
        "    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(SystemExit))\n"
        "    try:\n"
        "        time.sleep(600)\n"
        "    finally:\n"
        f"        open({str(tmp_path / 'seen')!r}, 'a').write('saved')\n"
    )
    stage = Stage(first=0, count=1, program_type=ProgramType.FUNCTION, run="waits:run")
    launch = launch_of(time_limit_s=3.0)
    program = replace(launch.program, stage=stage, envs={"PYTHONPATH": str(tmp_path)})

    async def steps(executor: TaskExecutor) -> OutcomeRecord:
        (outcome,) = await _outcomes(executor, replace(launch, program=program))
        return outcome

    assert run(steps).failure is FailureKind.TIMED_OUT
    assert seen(tmp_path) == ["saved"]


def test_run_within_its_time_limit_finishes(run: Any) -> None:
    async def steps(executor: TaskExecutor) -> OutcomeRecord:
        (outcome,) = await _outcomes(executor, launch_of(time_limit_s=1e9))
        assert len(executor._idle) == 1
        return outcome

    assert run(steps).kind is OutcomeKind.FINISHED


def test_run_launched_again_does_not_get_more_time(run: Any, tmp_path: Path) -> None:
    async def steps(executor: TaskExecutor) -> OutcomeRecord:
        launch = _limited(tmp_path, SAVES)
        await executor.begin([launch])
        await asyncio.sleep(1.5)
        began_s = time.monotonic()
        (outcome,) = await _outcomes(executor, launch)  # as a restarted master does
        assert time.monotonic() - began_s < 30
        return outcome

    assert run(steps).failure is FailureKind.TIMED_OUT
    assert seen(tmp_path).count("begun") == 1


def test_run_that_still_reads_at_its_time_limit_ends_there(run: Any) -> None:
    async def steps(executor: TaskExecutor) -> OutcomeRecord:
        async def hang(*_: object) -> list[Path]:
            await asyncio.Event().wait()
            return []

        executor._read_shards = hang  # type: ignore[method-assign]  # reading never ends
        (outcome,) = await _outcomes(executor, launch_of(time_limit_s=0.5))
        return outcome

    outcome = run(steps)
    assert (outcome.failure, outcome.message) == (
        FailureKind.TIMED_OUT,
        "its program had not started",
    )


def test_program_that_ended_in_time_may_store_its_result_after_the_limit(run: Any) -> None:
    async def steps(executor: TaskExecutor) -> OutcomeRecord:
        keep = executor._keep_result

        def slowly(*arguments: Any) -> tuple[int, ...]:
            time.sleep(8)
            return keep(*arguments)

        executor._keep_result = slowly  # type: ignore[method-assign]  # a slow disk
        (outcome,) = await _outcomes(executor, launch_of(time_limit_s=6.0))
        return outcome

    assert run(steps).kind is OutcomeKind.FINISHED


def test_scratch_of_a_run_is_made_while_the_last_other_run_of_its_job_removes_its_own(
    tmp_path: Path,
) -> None:
    def runs(number: int) -> None:
        scratch = tmp_path / "runs" / "job" / str(number)
        for _ in range(500):
            make_scratch(scratch)
            assert scratch.is_dir()
            remove_scratch(scratch)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(runs, range(4)))
    assert not (tmp_path / "runs" / "job").exists()


def _until_there(path: Path) -> None:
    while not path.exists():
        time.sleep(0.05)


_SAVE = "mkdir -p ckpt; echo saved > ckpt/model.pt"


@pytest.mark.parametrize(
    ("script", "fields", "kind"),
    [
        (_SAVE, {}, OutcomeKind.FINISHED),
        (f"{_SAVE}; (sleep 99; echo > late) & exit 0", {}, OutcomeKind.FINISHED),
        (f"{_SAVE}; exit 3", {}, OutcomeKind.FAILED),
        (f"{_SAVE}; sleep 99", {"time_limit_s": 2.0, "grace_s": 0.0}, OutcomeKind.FAILED),
        (f"{_SAVE}; touch here; sleep 99", {"grace_s": 0.0}, OutcomeKind.STOPPED),
    ],
    ids=["finished", "with a process left", "failed", "at its time limit", "stopped"],
)
def test_files_of_a_run_are_kept_however_it_ends(
    run: Any, tmp_path: Path, script: str, fields: dict[str, Any], kind: OutcomeKind
) -> None:
    launch = launch_of(program=command(script), **fields)

    async def steps(executor: TaskExecutor) -> OutcomeRecord:
        ending = asyncio.create_task(_outcomes(executor, launch))
        if kind is OutcomeKind.STOPPED:
            await asyncio.to_thread(_until_there, tmp_path / "n0/runs/j/0.1/files/here")
            await executor.stop([launch.run])
        (outcome,) = await ending
        return outcome

    outcome = run(steps)
    kept = outcome.usage.kept
    assert outcome.kind is kind
    assert kept is not None
    assert (kept.files, kept.left) == (2 if kind is OutcomeKind.STOPPED else 1, 0)
    assert b"".join(content_of(written_by(tmp_path, "n0", launch.run))) == b"saved\n"
    assert not (tmp_path / "n0" / "runs" / "j").exists()


def test_nothing_is_kept_of_a_run_that_writes_nothing_or_whose_job_wants_none(
    run: Any, tmp_path: Path
) -> None:
    none = replace(command(_SAVE), keep_files=None)
    launches = (
        launch_of(0, program=command("echo > $HEADGATE_OUTPUT")),
        launch_of(1, program=none),
    )

    async def steps(executor: TaskExecutor) -> list[OutcomeRecord]:
        return await _outcomes(executor, *launches)

    outcomes = run(steps)
    assert [(each.kind, each.usage.kept) for each in outcomes] == [(OutcomeKind.FINISHED, None)] * 2
    assert not (tmp_path / "n0" / "written").exists()


def test_command_reads_the_stdin_that_its_job_gives_it_else_an_empty_one(
    run: Any, tmp_path: Path
) -> None:
    text = "a {index}\r\n\0 end"
    program = command("cat > $HEADGATE_OUTPUT")
    given = replace(program, stage=replace(program.stage, params={"stdin": text}))
    launches = (launch_of(0, program=given), launch_of(1, program=program))

    async def steps(executor: TaskExecutor) -> list[OutcomeRecord]:
        return await _outcomes(executor, *launches)

    outcomes = run(steps)
    assert [(each.kind, each.usage.kept) for each in outcomes] == [(OutcomeKind.FINISHED, None)] * 2
    assert sorted(each.output_bytes for each in outcomes) == [0, len(text)]


def test_run_that_uses_more_than_it_holds_is_noted_until_it_ends(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_meter, "gpu_processes", lambda: {0: dict.fromkeys(psutil.pids(), 8)})
    holds = Demand(gpus=1, gpu_milli=500, gpu_memory_bytes=7)
    notes = notes_directory(tmp_path, "n0")
    record = replace(launch_of(0, (0,), program=command("sleep 60")), holds=holds)

    async def steps(executor: TaskExecutor) -> OutcomeRecord:
        await executor.begin([record])
        while not noted(notes):  # noqa: ASYNC110  # no event
            await asyncio.sleep(0.05)
        (over,) = noted(notes)
        assert over.run == record.run
        assert over.gpu_bytes % 8 == 0 < over.gpu_bytes
        await executor.stop([record.run])
        return await executor.outcome(record.run)

    assert run(steps).kind is OutcomeKind.STOPPED
    assert noted(notes) == ()
