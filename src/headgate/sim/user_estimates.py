"""Run times that users would have declared, for recorded jobs whose users declared none."""

from __future__ import annotations

from bisect import bisect_left

from headgate.base.rng import stream

_MIN, _H, _D = 60.0, 3600.0, 86400.0
POPULAR_S = (
    *(n * _MIN for n in (1, 5, 10, 15, 20, 30)),
    *(n * _H for n in (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 24)),
    *(n * _D for n in (2, 7)),
)
"""The times that users declare; more than seven days in whole days."""

UNDER = 0.1
"""The part of the jobs that take longer than declared."""


def user_estimate_s(seed: int, job: str, run_s: float) -> float:
    """Return what the user of a job that runs for so long declares; the same for equal arguments.

    Most declare too much: the part that a job uses of it is uniform between 0 and 1 (Mu'alem and
    Feitelson, Utilization, predictability, workloads, and user runtime estimates in scheduling the
    IBM SP2 with backfilling, IEEE TPDS 2001). Estimates are rounded, up to one of 20 values: about
    90 % of jobs use no more (Tsafrir, Etsion and Feitelson, Modeling user runtime estimates, JSSPP
    2005); the largest, seven days, stands for the most that a site allows. Deviates from both:
    these systems end runs at their estimates; here `UNDER` of the jobs declare the value below
    their run time, and run on.
    """
    rng = stream(seed, "user-estimates", job)
    if rng.random() < UNDER and run_s > POPULAR_S[0]:
        below = bisect_left(POPULAR_S, run_s) - 1
        return POPULAR_S[below]
    used = 1.0 - rng.random()  # more than 0
    wanted_s = max(run_s, min(run_s / used, POPULAR_S[-1]))
    if wanted_s > POPULAR_S[-1]:
        return _D * -(-wanted_s // _D)
    return POPULAR_S[bisect_left(POPULAR_S, wanted_s)]
