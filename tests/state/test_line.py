"""A queue's line against a plain list that is searched from end to end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.state.line import Line

ADD = st.tuples(st.just("add"), st.integers(0, 3), st.integers(-2, 2))
LEAVE = st.tuples(st.just("leave"), st.integers(0, 999), st.just(0))


@given(steps=st.lists(st.one_of(ADD, ADD, LEAVE), max_size=60))
def test_next_is_the_highest_priority_of_the_user_who_came_first(
    steps: list[tuple[str, int, int]],
) -> None:
    line, plain = Line(), []
    for job, (what, number, priority) in enumerate(steps):
        if what == "add":
            line.add(job, number, priority)
            plain.append((job, number, priority))
        elif plain:
            line.remove(plain.pop(number % len(plain))[0])
        assert ([*line], len(line)) == ([job for job, _, _ in plain], len(plain))
        if not plain:
            assert (line.earliest(), line.next()) == (None, None)
            continue
        first, user, _ = plain[0]
        own = [(-priority, job) for job, who, priority in plain if who == user]
        assert (line.earliest(), line.next()) == (first, min(own)[1])


def test_a_long_line_is_emptied_without_being_searched_again_and_again() -> None:
    line, count = Line(), 50_000
    for job in range(count):
        line.add(job, job % 7, job % 3)
    left = 0
    while (job := line.next()) is not None:
        line.remove(job)
        left += 1
    assert left == count  # a line that is searched for each job would not be done for minutes
