"""Random questions to a simulation: what they report, and that they change nothing."""

from __future__ import annotations

from itertools import chain, repeat
from typing import Any

import pytest

from headgate.app import POLICIES
from headgate.engine import Engine
from headgate.foresight.forecast import Forecast
from headgate.model import Gpu, Job, Node, Queue, RunId, Task
from headgate.ports import make_policy
from headgate.protocol import Admitted, JobSubmitted, NodeJoined, PlanAdmitted, QueueChanged
from headgate.sim import forecasts
from headgate.sim.forecasts import ForecastCheck
from headgate.sim.run import Outcome, Simulation, run
from headgate.spec import Links

Answer = tuple[float | None, float | None, float | None, str | None]
LINKS = Links(disk_bytes_per_s=1, node_link_bytes_per_s=1, rack_uplink_bytes_per_s=1)


def backlog(*, declared: bool) -> Simulation:
    """A dozen jobs for two GPUs, all submitted at the beginning."""
    jobs = []
    for n in range(12):
        compute_s = 10.0 + 7 * (n % 5)
        job = Job(
            id=f"j{n}", name=f"j{n}", user="ada", queue="q",
            tasks=(Task(compute_s=compute_s), Task(compute_s=compute_s)),
            estimated_s=compute_s if declared else None,
        )  # fmt: skip
        jobs.append((0.0, job))
    gpus = (Gpu(memory_bytes=1),) * 2
    return Simulation(
        nodes=(Node(id="n", rack="r", gpus=gpus, cpus=4),),
        links=LINKS,
        queues=(Queue(name="q"),),
        submissions=tuple(jobs),
    )


def asked(policy: str, share: float, *, seed: int = 1, declared: bool = True) -> Outcome:
    chosen = make_policy(POLICIES, policy)
    check = ForecastCheck(chosen, share=share, seed=seed)
    return run(backlog(declared=declared), chosen, forecasts=check)


@pytest.mark.parametrize("policy", ["fifo", "fs", "headgate"])
def test_forecasts_come_true_where_run_times_are_exact_and_no_job_arrives(policy: str) -> None:
    found = asked(policy, 1.0).figures["forecasts"]
    assert found["asked"] == found["answered"] > 10
    assert found["waits_over_1_s"] > 10
    assert (found["within"], found["coverage_80"], found["same_node"]) == (1.0, 1.0, 1.0)
    assert found["median_abs_error_s"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("policy", ["fifo", "headgate"])
def test_questions_change_nothing_and_depend_on_the_seed_alone(policy: str) -> None:
    with_them = asked(policy, 0.3, declared=False).figures
    found = with_them.pop("forecasts")
    chosen = make_policy(POLICIES, policy)
    assert run(backlog(declared=False), chosen).figures == with_them
    assert asked(policy, 0.3, declared=False).figures["forecasts"] == found
    assert asked(policy, 0.3, declared=False, seed=2).figures["forecasts"] != found
    assert found["asked"] < asked(policy, 1.0, declared=False).figures["forecasts"]["asked"]


def test_figures_are_those_of_the_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Answer] = [  # at, earliest, latest, node; the job starts on n at 10 s
        (11.9, 5.0, 12.0, "n"),  # within 2 s, covered
        (13.0, 10.5, None, "n"),  # neither
        (None, None, None, None),
        (8.0, 9.0, None, "m"),  # within 20 %, in an open interval, on another node
    ]
    found = figures_of(monkeypatch, answers, started_at=10.0)
    assert found == {
        "asked": 4,
        "answered": 3,
        "waits_over_1_s": 4,
        "coverage_80": pytest.approx(2 / 3),
        "median_width_s": None,  # of 7 s, and of two that are open
        "within": pytest.approx(2 / 4),
        "median_abs_error_s": pytest.approx(2.0),
        "same_node": pytest.approx(2 / 3),
    }


def test_short_waits_count_as_asked_only(monkeypatch: pytest.MonkeyPatch) -> None:
    found = figures_of(monkeypatch, [(0.5, 0.0, 1.0, "n")], started_at=0.9)
    assert found == {
        "asked": 1,
        "answered": 1,
        "waits_over_1_s": 0,
        "coverage_80": None,
        "median_width_s": None,
        "within": None,
        "median_abs_error_s": None,
        "same_node": None,
    }


def figures_of(
    monkeypatch: pytest.MonkeyPatch, answers: list[Answer], *, started_at: float
) -> dict[str, Any]:
    """Return the figures of a job of one task that is asked about at 0 and starts on n later."""
    given = chain(answers, repeat(answers[-1]))

    def forecast(*_: object) -> Forecast:
        at, earliest, latest, node = next(given)
        return Forecast(
            at=at, earliest=earliest, latest=latest, task=None, node=node, after=None,
            ends=0, rounds=1, until=0.0, unknown_runs=0,
        )  # fmt: skip

    monkeypatch.setattr(forecasts, "forecast", forecast)
    engine, job = Engine(), Job(id="j", name="j", user="ada", queue="q", tasks=(Task(),))
    node = Node(id="n", rack="r", gpus=(Gpu(memory_bytes=1),))
    engine.handle(
        QueueChanged(at=0.0, queue=Queue(name="q")),
        NodeJoined(at=0.0, node=node),
        JobSubmitted(at=0.0, job=job),
    )
    check = ForecastCheck(make_policy(POLICIES, "fifo"), share=1.0, seed=1)
    for _ in answers:
        check.observe(engine, [PlanAdmitted(at=0.0)], [])
    start = Admitted(RunId("j", 0, 1), "n", (0,))
    check.observe(engine, [PlanAdmitted(at=started_at, starts=(start,))], [])
    return check.figures()
