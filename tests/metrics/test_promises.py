"""Announced starts that held, and hardened units, counted from admitted plans."""

from __future__ import annotations

from headgate.metrics.promises import Promises
from headgate.model import RunId
from headgate.planning.times.reservations import RESERVED_AT, SUPERSEDED
from headgate.protocol import Admitted, Hardened, KeptPlace, PlanAdmitted


def start(at: float, *jobs: str) -> PlanAdmitted:
    runs = tuple(Admitted(RunId(job, 0, 1), "n", (0,)) for job in jobs)
    return PlanAdmitted(at=at, starts=runs)


def announced(at: float, **times: float) -> PlanAdmitted:
    return PlanAdmitted(at=at, memo={RESERVED_AT: times})


def test_announcement_holds_up_to_a_minute_or_a_tenth_of_the_wait_later() -> None:
    promises = Promises()
    promises((announced(0.0, soon=100.0, long=10_000.0, late=100.0, never=5.0),), ())
    promises((announced(50.0, soon=900.0),), ())  # the first announcement counts
    promises((start(160.0, "soon"), start(161.0, "late"), start(11_000.0, "long")), ())
    promises((start(12_000.0, "late", "unannounced"),), ())
    assert promises.figures()["kept_ratio"] == 2 / 3


def test_announcements_that_better_claims_displaced_are_counted_apart() -> None:
    promises = Promises()
    promises((announced(0.0, late=100.0, displaced=100.0, lucky=100.0),), ())
    gave_way = PlanAdmitted(at=1.0, memo={SUPERSEDED: {"displaced": 1.0, "lucky": 1.0}})
    back = PlanAdmitted(at=2.0, memo={SUPERSEDED: {"lucky": 0.0}})
    promises((gave_way, back, start(110.0, "lucky"), start(900.0, "late", "displaced")), ())
    figures = promises.figures()
    assert (figures["superseded"], figures["kept_ratio"]) == (1, 1 / 2)


def test_hardened_units_are_counted_with_their_waits() -> None:
    def kept(job: str, since: float) -> Hardened:
        return Hardened(job=job, since=since, places=(KeptPlace(0, "n", (0,)),))

    promises = Promises()
    assert promises.figures() == {
        "kept_ratio": None, "superseded": 0, "hardened": 0, "longest_hardened_wait_s": None,
    }  # fmt: skip
    promises((PlanAdmitted(at=10.0, hardened=kept("a", 10.0)),), ())
    promises((PlanAdmitted(at=20.0, hardened=kept("a", 10.0)),), ())
    promises((start(40.0, "a"), PlanAdmitted(at=41.0, hardened=kept("b", 41.0))), ())
    promises((PlanAdmitted(at=50.0, hardened=kept("c", 50.0)), start(51.0, "c")), ())
    figures = promises.figures()
    assert (figures["hardened"], figures["longest_hardened_wait_s"]) == (3, 30.0)
