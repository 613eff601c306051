"""Sizes and durations as people write them; error messages; random streams."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import HeadgateError, Problem, SpecError, WorldError, closest, nearest
from headgate.base.rng import stream
from headgate.base.units import format_seconds, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("64MiB", 64 << 20), ("64 mib", 64 << 20), ("1.5 GB", 1_500_000_000), ("2k", 2000),
        ("2Ki", 2048), (".5KiB", 512), ("1e3", 1000), ("1048576", 1 << 20), (17, 17),
        ("0", 0), (" 7 B ", 7), ("3 TiB", 3 << 40),
    ],
)  # fmt: skip
def test_parse_size_reads_sizes_as_people_write_them(text: str | int, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    "text",
    ["", "MiB", "-1", "1 MiBs", "1,5 GB", "1 2", "0x10", "nan", "inf", "1e999", True, "1.GB"],
)
def test_parse_size_raises_value_error_with_an_example_for_other_text(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size; write bytes or a unit such as 64MiB"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("30 min", 1800),
        ("12h", 43200),
        ("7d", 604800),
        ("1.5h", 5400),
        ("2w", 1209600),
    ],
)
def test_parse_duration_reads_durations_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "7", "d", "-1d", "7 D", "7 days", "1d12h", "1e999s", "1e305w", "m"]
)
def test_parse_duration_raises_value_error_with_an_example_for_other_text(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration; write a number and s, min, h, d or w"):
        parse_duration(text)


@given(st.integers(0, 2**52))
def test_a_formatted_size_is_correct_to_its_last_digit(size_bytes: int) -> None:
    text = format_size(size_bytes)
    number, unit = text.split()
    step = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}[unit]
    assert abs(float(number) * step - size_bytes) <= 0.051 * step


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"), (0.44, "0.4 s"), (12.2, "12 s"), (59.6, "1 min"), (200, "3 min 20 s"),
        (7200, "2 h"), (7500, "2 h 5 min"), (3599.7, "1 h"), (86400 * 3 + 3600 * 4, "3 d 4 h"),
    ],
)  # fmt: skip
def test_format_seconds_gives_a_short_duration(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_hint_names_the_nearest_known_word() -> None:
    assert nearest("gpu", ["gpus", "cpus", "name"]) == "did you mean 'gpus'?"
    assert nearest("zzz", ["b", "a"]) == "known: a, b"
    assert nearest("zzz", []) == ""


@pytest.mark.parametrize(
    ("word", "name"),
    [("sumbit", "submit"), ("--lmit", "--limit"), ("fiarshare", "fairshare"), ("n-1", None),
     ("tran-5", "train-5"), ("train", "train-5"), ("train-6", None), ("nosuch-1", None),
     ("nosuch", None), ("H200", None), ("work-l", None)],
)  # fmt: skip
def test_only_a_name_that_a_slip_of_the_keyboard_makes_is_suggested(
    word: str, name: str | None
) -> None:
    known = ["submit", "fairshare", "train-5", "sort-1", "touch-1", "H100", "m-1", "--limit"]
    assert closest(word, known) == name


def test_a_problem_shows_place_problem_and_hint() -> None:
    problem = Problem(path="jobs.0.gpus", problem="is negative", hint="write 1", line=7)
    assert str(problem) == "jobs.0.gpus (line 7): is negative; write 1"


def test_an_error_lists_every_problem_and_keeps_its_code() -> None:
    problems = [Problem(path="a", problem="is wrong"), Problem(path="", problem="has no place")]
    error = SpecError(problems, code="mine")
    assert str(error) == "a: is wrong\nhas no place"
    assert (error.code, SpecError("x").code, WorldError("x").code) == ("mine", "bad_spec", "world")
    assert isinstance(error, HeadgateError)


def test_streams_differ_by_seed_and_purpose_and_by_nothing_else() -> None:
    draws = {stream(*key).random() for key in [(1,), (2,), (1, "a"), (1, "b"), (1, 1), (1, "1")]}
    assert len(draws) == 6
    assert stream(1, "a", 2).random() == stream(1, "a", 2).random()


def test_a_stream_is_the_same_in_every_process() -> None:
    code = "from headgate.base.rng import stream; print(stream(7, 'decide', 3).getrandbits(64))"
    found = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True,
            text=True, check=True,
        ).stdout
        for seed in ("0", "1")
    }  # fmt: skip
    assert found == {f"{stream(7, 'decide', 3).getrandbits(64)}\n"}
