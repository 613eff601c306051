"""Gangs of which only the first process runs: commands on the other nodes, by the agent for MPI.

Real executors and workers on loopback addresses, without Ray.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.live.conftest import command

from headgate.live.actors.executor import TaskExecutor
from headgate.live.base.records import GangRecord, LaunchRecord, OutcomeKind, OutcomeRecord
from headgate.live.node.run_logs import log_path
from headgate.model import Demand, Launch, RunId
from headgate.protocol import FailureKind

PATIENCE_S = 60.0
HOSTS = ("127.78.0.1", "127.78.0.2", "127.78.0.3")
RSH = "$OMPI_MCA_plm_rsh_agent"


class Gang:
    """Executors of one job on three nodes, and the runs of a gang on them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.executors = [TaskExecutor(node=f"n{k}", root=str(root)) for k in range(3)]

    async def start(
        self, run: str, *, attempt: int = 1, launch: Launch = Launch.FIRST, **fields: Any
    ) -> None:
        """Launch all members, the first one last."""
        meeting = await self.executors[0].rendezvous("j", attempt)
        gang = GangRecord(hosts=HOSTS, first_node="n0", first_ray_id="r0", rendezvous=meeting)
        program = command(run, per_node=launch)
        for rank in (2, 1, 0):
            record = LaunchRecord(
                run=RunId("j", rank, attempt),
                node=f"n{rank}",
                ray_id=f"r{rank}",
                gpus=(rank, 5),
                reads=(),
                addresses={},
                holds=Demand(gpus=2),
                program=replace(program, index=rank, stage=replace(program.stage, count=3)),
                gang=gang,
                **fields,
            )
            await self.executors[rank].begin([record])

    async def outcomes(self, attempt: int = 1) -> list[OutcomeRecord]:
        """Return the outcomes of all members, by rank."""
        ends = (e.outcome(RunId("j", k, attempt)) for k, e in enumerate(self.executors))
        return list(await asyncio.gather(*ends))

    async def succeeds(self, run: str, **options: Any) -> str:
        """Run a gang to its successful end; return the log of its first member."""
        await self.start(run, **options)
        kinds = [outcome.kind for outcome in await self.outcomes()]
        assert kinds == [OutcomeKind.FINISHED] * 3, self.log(0)
        return self.log(0)

    def log(self, rank: int, attempt: int = 1) -> str:
        return log_path(self.root, f"n{rank}", RunId("j", rank, attempt)).read_text()


Steps = Callable[[Gang], Coroutine[Any, Any, Any]]


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Callable[[Steps], Any]]:
    """Run steps with a gang's executors, and close these."""

    def play_steps(steps: Steps) -> Any:
        async def whole() -> Any:
            gang = Gang(tmp_path)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    return await steps(gang)
            finally:
                for executor in gang.executors:
                    await executor.close()

        return asyncio.run(whole())

    before = os.umask(0o022)
    yield play_steps
    os.umask(before)


async def becomes(truth: Callable[[], Any]) -> None:
    while not truth():  # noqa: ASYNC110  # what it waits for happens in other processes
        await asyncio.sleep(0.05)


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_command_runs_on_the_first_node_only_and_reaches_the_others(play: Any) -> None:
    show = "echo rank $HEADGATE_RANK holds $CUDA_VISIBLE_DEVICES"
    run = f"{show}; for host in {' '.join(HOSTS)}; do {RSH} $host '{show}'; done"

    async def steps(gang: Gang) -> list[str]:
        await gang.succeeds(run)
        return [gang.log(rank) for rank in range(3)]

    lines = "rank 0 holds 0,5\nrank 0 holds 0,5\nrank 1 holds 1,5\nrank 2 holds 2,5\n"
    assert play(steps) == [lines, "", ""]


def test_all_processes_run_with_launch_all_and_have_a_host_file(play: Any) -> None:
    async def steps(gang: Gang) -> list[str]:
        run = f"cat $HEADGATE_HOSTFILE; echo {RSH}$HEADGATE_RENDEZVOUS {{index}} of $WORLD_SIZE"
        await gang.succeeds(run, launch=Launch.ALL)
        return [gang.log(rank) for rank in range(3)]

    hosts = "".join(f"{host} slots=2\n" for host in HOSTS)
    assert play(steps) == [f"{hosts}{rank} of 3\n" for rank in range(3)]


def test_agent_passes_output_and_exit_status_on_as_rsh_does(play: Any) -> None:
    host = HOSTS[1]
    run = (
        f"{RSH} -x {host} 'echo to stderr >&2; exit 3' 2>err; echo $? $(cat err);"
        f"{RSH} {host} kill -9 '$$'; echo $?;"
        f"{RSH} {host} head -c 3000000 /dev/zero | wc -c;"
        f"{RSH} {host} cat; echo stdin was empty;"
        f"{RSH} {host} sleep 600 '&' echo left; echo $?"  # it does not wait for what is left
    )
    expected = "3 to stderr\n137\n3000000\nstdin was empty\nleft\n0\n"
    assert play(lambda gang: gang.succeeds(run)) == expected


def test_agent_explains_what_it_cannot_do(play: Any) -> None:
    run = (
        f"{RSH} elsewhere true; echo $?;"
        f"{RSH} {HOSTS[1]}; echo $?;"
        f"env -u HEADGATE_RENDEZVOUS {RSH} {HOSTS[1]} true; echo $?"
    )
    assert play(lambda gang: gang.succeeds(run)) == (
        f"headgate: 'elsewhere' is no node of this job; its nodes are {', '.join(HOSTS)}\n255\n"
        "headgate: usage: HOST COMMAND...\n255\n"
        "headgate: only a process of a running job with 'launch: first' can reach its other "
        "nodes\n255\n"
    )


def test_hub_accepts_nothing_without_the_token(play: Any, tmp_path: Path) -> None:
    gate, mark = tmp_path / "gate", tmp_path / "mark"

    async def steps(gang: Gang) -> None:
        await gang.start(f"until [ -e {gate} ]; do sleep 0.05; done")
        meeting = await gang.executors[0].rendezvous("j", 1)
        hello = {"host": HOSTS[1], "command": f"touch {mark}"}

        def ask(**more: Any) -> bytes:
            while True:
                try:
                    hub = socket.create_connection((HOSTS[0], meeting.hub_port), timeout=10)
                    break
                except ConnectionRefusedError:
                    time.sleep(0.05)
            with hub:
                hub.sendall(json.dumps({**hello, **more}).encode() + b"\n")
                return hub.makefile("rb").readline()

        for wrong in ({}, {"token": ""}, {"token": "x"}, {"token": None}, {"token": [1]}):
            assert await asyncio.to_thread(ask, **wrong) == b""
        assert not mark.exists()
        await becomes(lambda: len(psutil.Process().children(recursive=True)) >= 7)
        gate.touch()
        assert {outcome.kind for outcome in await gang.outcomes()} == {OutcomeKind.FINISHED}

    play(steps)


@pytest.mark.parametrize("how", ["end", "stop", "crash"])
def test_daemons_end_with_the_run_however_it_ends(play: Any, tmp_path: Path, how: str) -> None:
    pids, gate = tmp_path / "pids", tmp_path / "gate"
    pids.mkdir()
    daemon = (
        f"setsid sh -c 'echo \\$\\$ > {pids}/\\$HEADGATE_RANK; exec sleep 600' >/dev/null 2>&1 &"
    )
    hosts = " ".join(HOSTS)
    run = (
        f'for host in {hosts}; do {RSH} $host "{daemon}"; done;'
        f"until [ -e {gate} ]; do sleep 0.05; done"
    )

    async def steps(gang: Gang) -> list[OutcomeKind]:
        await gang.start(run)
        await becomes(lambda: len([p for p in pids.glob("?") if p.read_text().strip()]) == 3)
        daemons = [int(path.read_text()) for path in sorted(pids.glob("?"))]
        assert all(map(alive, daemons))
        if how == "end":
            gate.touch()
        elif how == "stop":
            for rank, executor in enumerate(gang.executors):
                await executor.stop([RunId("j", rank, 1)])
        else:  # the first member's worker, whose hub ends with it
            guard = psutil.Process(daemons[0]).parents()[0]
            (hub,) = [p for p in guard.children() if "headgate.live.run.worker" in p.cmdline()]
            hub.send_signal(signal.SIGKILL)
            await gang.executors[0].outcome(RunId("j", 0, 1))
            for rank in (1, 2):  # as the engine does with the rest of a gang
                await gang.executors[rank].stop([RunId("j", rank, 1)])
        outcomes = await gang.outcomes()
        assert not any(map(alive, daemons))
        return [outcome.kind for outcome in outcomes]

    finished, stopped = OutcomeKind.FINISHED, OutcomeKind.STOPPED
    expected = {
        "end": [finished] * 3,
        "stop": [stopped] * 3,
        "crash": [OutcomeKind.FAILED, stopped, stopped],
    }
    assert play(steps) == expected[how]


def test_command_ends_when_its_agent_is_killed(play: Any, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    remote = f"echo '$$' '>' {pid}';' exec sleep 600"
    run = (
        f"{RSH} {HOSTS[2]} {remote} & "
        f"until [ -s {pid} ]; do sleep 0.05; done; kill -9 $!; "
        f"while kill -0 $(cat {pid}); do sleep 0.05; done; echo ended"
    )
    assert "ended" in play(lambda gang: gang.succeeds(run))


def test_failed_command_fails_the_first_member_alone(play: Any) -> None:
    async def steps(gang: Gang) -> list[OutcomeRecord]:
        await gang.start("exit 3")
        return await gang.outcomes()

    first, *others = play(steps)
    assert (first.kind, "exit status 3" in first.message) == (OutcomeKind.FAILED, True)
    assert [other.kind for other in others] == [OutcomeKind.FINISHED] * 2


def test_time_limit_gives_notice_to_the_first_process_and_leaves_it_its_grace(play: Any) -> None:
    save = f"save() {{ {RSH} {HOSTS[1]} 'sleep 1; echo saved on the other node'; exit; }}"

    async def steps(gang: Gang) -> list[OutcomeRecord]:
        run = f"{save}; trap save TERM; while :; do sleep 0.1; done"
        await gang.start(run, time_limit_s=1)
        return await gang.outcomes()

    first, *others = play(steps)
    assert first.failure is FailureKind.TIMED_OUT
    assert "saved on the other node" in first.message
    assert [other.kind for other in others] == [OutcomeKind.FINISHED] * 2


def test_stop_gives_notice_to_the_first_process_which_may_still_use_other_nodes(play: Any) -> None:
    save = f"save() {{ {RSH} {HOSTS[1]} 'sleep 1; echo saved on the other node'; exit; }}"

    async def steps(gang: Gang) -> tuple[list[OutcomeRecord], str]:
        await gang.start(f"{save}; trap save TERM; echo begun; while :; do sleep 0.1; done")
        log = log_path(gang.root, "n0", RunId("j", 0, 1))
        await becomes(lambda: log.exists() and "begun" in log.read_text())
        for rank, executor in enumerate(gang.executors):
            await executor.stop([RunId("j", rank, 1)])
        return await gang.outcomes(), gang.log(0)

    outcomes, log = play(steps)
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.STOPPED] * 3
    assert {outcome.message for outcome in outcomes} == {"it ended after the notice"}
    assert "saved on the other node" in log


def test_stop_of_a_gang_whose_first_process_never_started_waits_for_nothing(play: Any) -> None:
    async def steps(gang: Gang) -> list[OutcomeKind]:
        starts = gang.executors[0].begin
        gang.executors[0].begin = _nothing
        await gang.start("true", grace_s=600.0)
        gang.executors[0].begin = starts
        executor, run = gang.executors[1], RunId("j", 1, 1)
        await becomes(lambda: executor._runs[run].worker is not None)
        await asyncio.sleep(2)  # it waits for the hub
        for rank, each in enumerate(gang.executors):
            await each.stop([RunId("j", rank, 1)])
        return [outcome.kind for outcome in await gang.outcomes()]

    assert play(steps) == [OutcomeKind.STOPPED] * 3


async def _nothing(_: object) -> None:
    """Do nothing."""


def test_next_attempt_has_another_port_and_reaches_its_nodes(play: Any) -> None:
    async def steps(gang: Gang) -> list[str]:
        run = f"{RSH} {HOSTS[1]} echo '$MASTER_PORT'"
        for attempt in (1, 2):
            await gang.start(run, attempt=attempt)
            await gang.outcomes(attempt)
        return [gang.log(0, attempt) for attempt in (1, 2)]

    first, second = play(steps)
    assert first != second
    assert first.strip().isdigit()
    assert second.strip().isdigit()
