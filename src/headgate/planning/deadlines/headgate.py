"""Headgate's own: minimum shares, each arrival admitted by itself, and nothing given up early."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.planning.deadlines.jobs import Allocation, TrainingJob, by_deadline
from headgate.planning.deadlines.plan import LATE_S, LeftoverRule, SharePlan


class LostTime:
    """The share of time on GPUs in which jobs made no progress, over all that was seen.

    It is learnt from the work that is left at a decision and at the next: it counts whatever a
    change of widths costs, and rates that are lower than measured.
    """

    def __init__(self) -> None:
        """Begin with nothing seen, which is no loss."""
        self._held_s = self._lost_s = 0.0
        self._before: dict[int, tuple[float, float]] = {}  # work left and rate by key
        self._at_s = 0.0

    @property
    def share(self) -> float:
        """From 0, below 1."""
        return self._lost_s / self._held_s if self._held_s else 0.0

    def see(self, jobs: Sequence[TrainingJob], now_s: float) -> None:
        """Compare jobs with what `begin` noted."""
        span_s = now_s - self._at_s
        for job in jobs:
            left, rate = self._before.get(job.key, (0.0, 0.0))
            if rate > 0 and span_s > 0:
                self._held_s += span_s
                self._lost_s += min(span_s, max(0.0, span_s - (left - job.left) / rate))

    def begin(self, jobs: Sequence[TrainingJob], widths: Sequence[int], now_s: float) -> None:
        """Note what jobs have left, and the widths with which they continue."""
        self._at_s = now_s
        self._before = {
            job.key: (job.left, job.curve.rate(width))
            for job, width in zip(jobs, widths, strict=True)
            if width
        }


class KeptPromises:
    """Admits each arrival that can end in time beside all others, and rejects none for good.

    The minimum shares are those of ElasticFlow (ASPLOS 2023, section 4.1). It deviates in five
    points. Arrivals of one decision are admitted one by one, the least work first, so that one that
    cannot be met costs no other its place. An arrival is tested against a deadline earlier by the
    share of time that jobs lose (`LostTime`). It is admitted if it makes no other job late, even if
    one is late already. A job that cannot end in time any more comes last. A rejected one is
    planned later if there is room for it, and gets what no other job can use. What is free goes by
    the GPU time saved later, not added.
    """

    best_effort = True

    def __init__(self, *, gpus: int, slot_s: float = 0.0) -> None:
        """Divide so many GPUs, in slots of `slot_s` seconds, 0 for none."""
        self._plan = SharePlan(gpus=gpus, slot_s=slot_s)
        self._lost = LostTime()

    def decide(self, jobs: Sequence[TrainingJob], now_s: float) -> Allocation:
        """Return the widths of now, and the plan that they are part of."""
        self._lost.see(jobs, now_s)
        plan, earlier = self._plan, 1 - self._lost.share
        deadline_s = [
            job.deadline_s
            if job.admitted is not None
            else now_s + (job.deadline_s - now_s) * earlier
            for job in jobs
        ]
        plan.begin(jobs, now_s, deadline_s)
        rank = {row: place for place, row in enumerate(by_deadline(jobs))}
        cheapest = sorted(rank, key=lambda row: (_least_gpu_s(jobs[row]), rank[row]))
        possible = [
            now_s + job.left / job.curve.rate(job.useful) <= job.deadline_s + LATE_S for job in jobs
        ]
        order = self._admit(
            [row for row in rank if jobs[row].admitted and possible[row]],
            [row for row in cheapest if jobs[row].admitted is None and possible[row]],
            rank,
        )
        others = [row for row in cheapest if jobs[row].admitted is False and possible[row]]
        order += [row for row in others if plan.add(row)]
        order.sort(key=rank.__getitem__)
        plan.spread(order, LeftoverRule.SAVED)
        change_s = plan.change_s()
        planned = dict.fromkeys(order)
        waiting = [row for row in cheapest if row not in planned]
        for row in waiting:
            if possible[row] or jobs[row].admitted:
                plan.add(row, late=True)
        admitted = [row in planned or bool(job.admitted) for row, job in enumerate(jobs)]
        found = plan.allocation(admitted, [*order, *waiting], change_s)
        self._lost.begin(jobs, found.widths, now_s)
        return found

    def _admit(
        self, order: Sequence[int], arrivals: Sequence[int], rank: dict[int, int]
    ) -> list[int]:
        """Plan the minimum shares of admitted rows, and of arrivals that fit; return all of them.

        An arrival that finds no room in what is left may find it in its turn by deadline.
        """
        plan, chosen = self._plan, [*order]
        late = self._fill(chosen)
        for row in arrivals:
            if plan.add(row):
                chosen.append(row)
                continue
            plan.mark()
            trial = sorted([*chosen, row], key=rank.__getitem__)
            plan.fill(trial)
            found = plan.late()
            if found <= late:
                chosen, late = trial, found
            else:
                plan.undo()
        return chosen

    def _fill(self, order: Sequence[int]) -> set[int]:
        """Plan the minimum shares of admitted rows by deadline; return those that are late.

        A width that is enough for one job may leave others widths that do not add up. What was
        planned last still keeps every promise then, unless jobs were slower than planned.
        """
        plan = self._plan
        filled = plan.fill(order)
        if filled and plan.resume(order) >= filled:
            plan.fill(order)
        return plan.late() if filled else set()


def _least_gpu_s(job: TrainingJob) -> float:
    """Return the GPU time of what is left at the narrowest width, where least is wasted."""
    return job.left / job.curve.rates[0] * job.curve.widths[0]
