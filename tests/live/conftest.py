"""A small Ray cluster on loopback that the live tests share, and hands to work it with."""

from __future__ import annotations

import os
import pwd
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.live.shared import Clusters
from tests.live.system import Gates, Headgate

from headgate.live.actors.agent import AgentReport, start_agent
from headgate.live.actors.masters import end_account, start_master
from headgate.live.base.records import (
    LaunchRecord,
    OutcomeKind,
    OutcomeRecord,
    StopRecord,
    launch_record,
)
from headgate.live.cluster.ray_nodes import (
    RayMember,
    connect,
    local_cluster,
    members,
    start_nodes,
    stop_nodes,
)
from headgate.live.node import flight
from headgate.model import (
    Demand,
    Gpu,
    Node,
    ProgramType,
    Read,
    RunId,
    Stage,
    TaskProgram,
    result_id,
)
from headgate.protocol import LaunchTask

NODES = tuple(
    Node(id=f"n{number}", rack=f"r{number // 2}", gpus=(Gpu(memory_bytes=2 << 30),) * 2)
    for number in range(3)
)
TOKEN = "the lab's token"
ME = pwd.getpwuid(os.geteuid()).pw_name


def until(truth: Callable[[], Any], what: str, patience_s: float = 30) -> Any:
    """Wait for something to become true, and return it."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        if found := truth():
            return found
        time.sleep(0.05)
    raise AssertionError(f"after {patience_s} s still not: {what}")


@pytest.fixture(scope="session")
def clusters() -> Iterator[Clusters]:
    """The cluster that modules share."""
    clusters = Clusters()
    yield clusters
    clusters.close()


@pytest.fixture(scope="module")
def headgate(request: pytest.FixtureRequest, clusters: Clusters) -> Iterator[Headgate]:
    """A Headgate for the tests of one module, with the nodes and options of its `SYSTEM`."""
    with clusters.lend(request.module.__name__, **request.module.SYSTEM) as headgate:
        yield headgate


@pytest.fixture
def gates(tmp_path: Path) -> Gates:
    """Gates at which programs of this test wait."""
    return Gates(tmp_path / "gates")


def command(run: str, **options: Any) -> TaskProgram:
    """Return the program of a task that is alone in its stage and runs a command as this user."""
    stage = Stage(first=0, count=1, program_type=ProgramType.COMMAND, run=run)
    return TaskProgram(**{"user": ME, "stage": stage, "index": 0, **options})


def launch_of(number: int = 0, gpus: tuple[int, ...] = (), **fields: Any) -> LaunchRecord:
    """Return the record of a first run on n0, of the command `true` unless `fields` differ."""
    defaults = {
        "run": RunId("j", number, 1),
        "node": "n0",
        "ray_id": "r0",
        "gpus": gpus,
        "reads": (),
        "addresses": {},
        "holds": Demand(gpus=len(gpus)),
        "program": command("true"),
    }
    return LaunchRecord(**{**defaults, **fields})


class Method:
    """A method of a fake actor, called as one of a Ray actor is."""

    def __init__(self, call: Callable[..., Awaitable[Any]]) -> None:
        self.remote = call


class Lab:
    """A driver of the shared cluster, with an agent on every node."""

    def __init__(self, state: Path) -> None:
        """Start the agents of the nodes that are up."""
        self.state, self.root = state, state / "nodes"
        self.refresh()

    def refresh(self) -> None:
        """Look at the nodes that are up now."""
        self.members: dict[str, RayMember] = {member.name: member for member in members()}
        self.agents = {
            name: start_agent(m, self.root, token=TOKEN) for name, m in self.members.items()
        }
        self.reports = {name: self.ask(agent.report) for name, agent in self.agents.items()}

    def ask(self, method: Any, *arguments: Any) -> Any:
        """Call an actor and wait for its answer."""
        import ray

        return ray.get(method.remote(*arguments), timeout=60)

    def report(self, node: str) -> AgentReport:
        """Return the current report of a node's agent."""
        report: AgentReport = self.ask(self.agents[node].report)
        return report

    def put(self, node: str, shard: str, content: bytes) -> None:
        """Put a shard onto a node."""
        report = self.reports[node]
        flight.send(report.host, report.port, shard, [content], token=TOKEN)

    def pid(self, actor: Any) -> int:
        """Return the process id of an actor."""
        found: int = self.ask(actor.__ray_call__, lambda _: __import__("os").getpid())
        return found


class LabMaster:
    """An account's master, driven by hand, and how far its reports are known."""

    def __init__(self, lab: Lab, account: str, *, grace_s: float = 20) -> None:
        """Start it."""
        self.actor = start_master(account, lab.root, grace_s=grace_s)
        self.incarnation, self.acked = "", 0


class LabJob:
    """One job, driven by hand; every record is of the next run of its task."""

    def __init__(
        self, lab: Lab, job: str, *runs: dict[str, str], by: LabMaster | None = None, **options: Any
    ) -> None:
        """Each of `runs` (`{"function": ...}` or `{"command": ...}`) is a stage of one task.

        Without a master `by`, the job has its own, with these options.
        """
        self.lab, self.id = lab, job
        self._by = by or LabMaster(lab, job, **options)
        self.master = self._by.actor
        self._envs = {"PYTHONPATH": str(Path(__file__).parent)}
        self._stages = [
            Stage(first=n, count=1, program_type=ProgramType(how), run=what, params={"n": n})
            for n, run in enumerate(runs)
            for how, what in run.items()
        ]
        self._attempts: Counter[int] = Counter()  # runs so far, by the ordinals of their tasks

    def record(
        self,
        ordinal: int,
        node: str,
        gpus: tuple[int, ...] = (),
        reads: Sequence[Read] = (),
    ) -> LaunchRecord:
        """Build the record of a task's next run."""
        self._attempts[ordinal] += 1
        run = RunId(self.id, ordinal, self._attempts[ordinal])
        program = TaskProgram(user=ME, stage=self._stages[ordinal], index=0, envs=self._envs)
        command = LaunchTask(
            run=run,
            node=node,
            gpus=gpus,
            reads=tuple(reads),
            holds=Demand(gpus=len(gpus)),
            program=program,
        )
        addresses = {name: (r.host, r.port) for name, r in self.lab.reports.items()}
        ray_id = self.lab.members[node].ray_id
        return launch_record(command, ray_id=ray_id, addresses=addresses)

    def launch(self, *records: LaunchRecord) -> None:
        """Send launches to the master."""
        self._by.incarnation = self.lab.ask(self.master.launch, records)

    def stop(self, *records: LaunchRecord) -> None:
        """Have runs stopped."""
        stops = [StopRecord(run=r.run, node=r.node, ray_id=r.ray_id) for r in records]
        assert self.lab.ask(self.master.stop, stops) == self._by.incarnation

    def run(self, *arguments: Any, **options: Any) -> OutcomeRecord:
        """Launch one run and wait for its end."""
        record = self.record(*arguments, **options)
        self.launch(record)
        return self.ends(record)[0]

    def ends(self, *records: LaunchRecord, patience_s: float = 60) -> list[OutcomeRecord]:
        """Wait for the ends of these launches; their starts must have been reported before."""
        outcomes: dict[RunId, list[OutcomeRecord]] = {}
        end = time.monotonic() + patience_s
        while not all(self._has_ended(outcomes.get(record.run, [])) for record in records):
            assert time.monotonic() < end, f"not all ended: {outcomes}"
            batch = self.lab.ask(self.master.poll, self._by.incarnation, self._by.acked, 1.0)
            assert batch.incarnation == self._by.incarnation
            for number, outcome in batch.outcomes:
                assert number > self._by.acked, "reported again although acknowledged"
                outcomes.setdefault(outcome.run, []).append(outcome)
                self._by.acked = number
        for record in records:
            kinds = [outcome.kind for outcome in outcomes[record.run]]
            assert kinds in ([OutcomeKind.STARTED, kinds[-1]], [OutcomeKind.FAILED])
        return [outcomes[record.run][-1] for record in records]

    @staticmethod
    def _has_ended(outcomes: list[OutcomeRecord]) -> bool:
        return bool(outcomes) and outcomes[-1].kind is not OutcomeKind.STARTED

    def meet_new_master(self) -> None:
        """Wait until a dead master is back, with new numbers."""
        old, self._by.acked = self._by.incarnation, 0

        def incarnation() -> str:
            try:
                batch = self.lab.ask(self.master.poll, "", 0, 0.0)
            except Exception:  # noqa: BLE001  # it is on its way
                return ""
            return str(batch.incarnation)

        until(lambda: incarnation() not in ("", old), "the master is back")

    def result(self, ordinal: int, node: str) -> bytes:
        """Fetch a task's result from the node where it ran."""
        report = self.lab.reports[node]
        to = self.lab.state / "fetched"
        flight.fetch(report.host, report.port, result_id(self.id, ordinal), to, token=TOKEN)
        return to.read_bytes()

    def log(self, ordinal: int, node: str, attempt: int = 1) -> str:
        """Return a run's log."""
        run = RunId(self.id, ordinal, attempt)
        content: bytes = self.lab.ask(self.lab.agents[node].read_log, run).data
        return content.decode()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The state directory of three nodes n0, n1 (rack r0) and n2 (rack r1), two GPUs each."""
    state = tmp_path_factory.mktemp("cluster")
    start_nodes(state, NODES)
    yield state
    stop_nodes(state)


@pytest.fixture(scope="module")
def lab(cluster: Path) -> Iterator[Lab]:
    """A driver in this process."""
    found = local_cluster(cluster)
    assert found is not None
    connect(found.address, token=found.token)
    import ray

    yield Lab(cluster)
    ray.shutdown()


@pytest.fixture
def new_job(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Callable[..., LabJob]]:
    """Make jobs that are ended after the test."""
    made: list[str] = []

    def make(*runs: dict[str, str], **options: Any) -> LabJob:
        made.append(f"{request.node.originalname}-{len(made)}")
        return LabJob(lab, made[-1], *runs, **options)

    yield make
    for job in made:
        end_account(job)
