"""The laminar solver against OR-tools, after any changes, and its plans when time runs out."""

from __future__ import annotations

from hypothesis import given, settings
from tests.flow.laminar_cases import cases, problems
from tests.flow.laminar_oracle import Case, Problem, optimum, optimum_of_all, play

from headgate.flow import LaminarSolver


@given(problems(most_places=6, most_units=4))
def test_the_oracle_finds_the_best_of_all_plans(problem: Problem) -> None:
    assert optimum(problem) == optimum_of_all(problem)


@settings(max_examples=1200)
@given(cases(all_fit=True))
def test_every_plan_is_the_cheapest_and_its_prices_prove_it(case: Case) -> None:
    play(case, LaminarSolver)


@settings(max_examples=500)
@given(cases(all_fit=False))
def test_where_not_all_fit_as_many_as_can_have_a_place(case: Case) -> None:
    play(case, LaminarSolver)


@settings(max_examples=500)
@given(cases(all_fit=True, budgets=True))
def test_a_plan_out_of_time_is_feasible_within_its_gap_and_mended_by_the_next(case: Case) -> None:
    play(case, LaminarSolver)


@settings(max_examples=300)
@given(cases(all_fit=False, budgets=True))
def test_out_of_time_where_not_all_fit(case: Case) -> None:
    play(case, LaminarSolver)
