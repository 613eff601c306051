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


def test_removing_many_jobs_does_not_search_all_of_them_each_time() -> None:
    queued, count = QueuedJobs(), 50_000
    for job in range(count):
        queued.add(job, job % 7, job % 3)
    left = 0
    while (job := queued.next()) is not None:
        queued.remove(job)
        left += 1
    assert left == count  # searching all jobs for each would take minutes
