"""The queued jobs of a queue against a plain list that is searched from end to end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.state.queued_jobs import QueuedJobs

ADD = st.tuples(st.just("add"), st.integers(0, 3), st.integers(-2, 2))
LEAVE = st.tuples(st.just("leave"), st.integers(0, 999), st.just(0))


@given(steps=st.lists(st.one_of(ADD, ADD, LEAVE), max_size=60))
def test_next_is_the_highest_priority_of_the_user_who_arrived_first(
    steps: list[tuple[str, int, int]],
) -> None:
    queued, plain = QueuedJobs(), []
    for job, (what, number, priority) in enumerate(steps):
        if what == "add":
            queued.add(job, number, priority)
            plain.append((job, number, priority))
        elif plain:
            queued.remove(plain.pop(number % len(plain))[0])
        assert ([*queued], len(queued)) == ([job for job, _, _ in plain], len(plain))
        if not plain:
            assert (queued.earliest(), queued.next()) == (None, None)
            continue
        first, user, _ = plain[0]
        own = [(-priority, job) for job, who, priority in plain if who == user]
        assert (queued.earliest(), queued.next()) == (first, min(own)[1])


class Row(int):
    """A row that counts how often rows are compared."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        Row.compared += 1
        return int(self) < int(other)

    def __eq__(self, other: object) -> bool:
        Row.compared += 1
        return int(self) == other

    __hash__ = int.__hash__


def test_comparisons_per_job_that_leaves_are_logarithmic_in_the_queued_jobs() -> None:
    queued, count = QueuedJobs(), 4096
    Row.compared = 0
    for job in range(count):
        queued.add(Row(job), job % 7, job % 3)
    while (row := queued.next()) is not None:
        queued.remove(row)
    assert len(queued) == 0
    assert count < Row.compared < 10 * 12 * count  # 2^12 jobs
