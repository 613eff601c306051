"""Vectors against a plain list of dicts: whatever is written, a frozen view keeps its values."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.base.column import PAGE_ROWS
from headgate.base.vectors import FrozenVectors, Vectors

KINDS = 5
AMOUNT = st.integers(-(1 << 62), 1 << 62)
SMALL = st.integers(-1000, 1000)
ROW = st.integers(0, 10**6)
AMOUNTS = st.lists(AMOUNT, max_size=KINDS)
NEEDS = st.lists(st.tuples(st.integers(0, KINDS - 1), SMALL), max_size=4)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), AMOUNTS),
        st.tuples(st.just("many"), st.lists(SMALL, max_size=KINDS), st.integers(0, PAGE_ROWS + 2)),
        st.tuples(st.just("set"), ROW, AMOUNTS),
        st.tuples(st.just("add"), ROW, NEEDS, st.sampled_from((1, -1))),
        st.tuples(st.just("freeze")),
        st.tuples(st.just("thaw")),
        st.tuples(st.just("pickle")),
    ),
    max_size=20,
)

Model = list[dict[int, int]]  # amounts by kind, those of 0 left out


def amounts_of(values: list[int]) -> dict[int, int]:
    return {kind: amount for kind, amount in enumerate(values) if amount}


def do(vectors: Vectors, model: Model, step: tuple[Any, ...]) -> None:
    match step:
        case ("append", values):
            vectors.append(values)
            model.append(amounts_of(values))
        case ("many", values, count):
            for _ in range(count):
                vectors.append(tuple(values))
                model.append(amounts_of(values))
        case ("set", row, values) if model:
            vectors[row % len(model)] = values
            model[row % len(model)] = amounts_of(values)
        case ("add", row, needs, sign) if model:
            at = model[row % len(model)]
            needs = [(k, n) for k, n in needs if abs(at.get(k, 0)) < 1 << 61]
            vectors.add(row % len(model), iter(needs), sign)
            for kind, amount in needs:
                at[kind] = at.get(kind, 0) + sign * amount


def assert_equal(held: Vectors | FrozenVectors, model: Model) -> None:
    """Assert that every method of reading a matrix gives the values of the model."""
    assert len(held) == len(model)
    matrix = held.array()
    width = matrix.shape[1]
    expected = [[row.get(kind, 0) for kind in range(width)] for row in model]
    assert matrix.tolist() == expected
    assert not any(amount for row in model for kind, amount in row.items() if kind >= width)
    for kind in range(KINDS + 1):
        assert held.kind(kind).tolist() == [row.get(kind, 0) for row in model]
    for row in {0, 1, PAGE_ROWS - 1, PAGE_ROWS, len(model) - 1} & {*range(len(model))}:
        assert held[row] == tuple(expected[row])
        for kind in range(KINDS + 1):
            assert held.at(row, kind) == model[row].get(kind, 0)
            assert type(held.at(row, kind)) is int


def copied(model: Model) -> Model:
    return [dict(row) for row in model]


@settings(max_examples=200)
@given(steps=STEPS)
def test_vectors_equal_a_list_of_dicts_and_frozen_views_never_change(
    steps: list[tuple[Any, ...]],
) -> None:
    vectors, model = Vectors(), Model()
    seen: list[tuple[FrozenVectors, Model]] = []
    for step in steps:
        do(vectors, model, step)
        match step:
            case ("freeze",):
                seen.append((vectors.freeze(), copied(model)))
            case ("thaw",):
                frozen = vectors.freeze()
                seen.append((frozen, copied(model)))
                vectors = frozen.thaw()
            case ("pickle",):
                frozen = pickle.loads(pickle.dumps(vectors.freeze()))
                seen.append((frozen, copied(model)))
                vectors = frozen.thaw()
    assert_equal(vectors, model)
    assert_equal(vectors.freeze(), model)
    for frozen, then in seen:
        assert_equal(frozen, then)


@settings(max_examples=100)
@given(before=STEPS, ours=STEPS, theirs=STEPS)
def test_writes_to_a_thawed_copy_leave_the_frozen_one_unchanged(
    before: list[tuple[Any, ...]], ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]
) -> None:
    vectors, model = Vectors(), Model()
    for step in before:
        do(vectors, model, step)
    frozen, shared = vectors.freeze(), copied(model)
    copy, other = frozen.thaw(), copied(model)
    for number in range(max(len(ours), len(theirs))):
        if number < len(ours):
            do(vectors, model, ours[number])
        if number < len(theirs):
            do(copy, other, theirs[number])
    assert_equal(vectors, model)
    assert_equal(copy, other)
    assert_equal(frozen, shared)


def test_existing_rows_have_zero_of_a_kind_added_later() -> None:
    vectors = Vectors()
    vectors.append(())
    vectors.append((7,))
    frozen = vectors.freeze()
    vectors.append((1, 2, 3))
    vectors[0] = (0, 0, 0, 9)
    assert [vectors[row] for row in range(3)] == [(0, 0, 0, 9), (7, 0, 0, 0), (1, 2, 3, 0)]
    assert [frozen[row] for row in range(2)] == [(0,), (7,)]
    vectors[0] = ()
    assert vectors[0] == (0, 0, 0, 0)


@pytest.mark.parametrize("row", [2, -1])
def test_reading_or_writing_a_row_out_of_range_raises_index_error(row: int) -> None:
    vectors = Vectors()
    vectors.append((1,))
    vectors.append((2,))
    for read in (
        lambda: vectors[row],
        lambda: vectors.at(row, 0),
        lambda: vectors.freeze()[row],
        lambda: vectors.freeze().at(row, 0),
        lambda: vectors.add(row, ((0, 1),), 1),
    ):
        with pytest.raises(IndexError):
            read()
    with pytest.raises(IndexError):
        vectors[row] = (5,)
    assert vectors.array().tolist() == [[1], [2]]
