"""Charts: round times, and rows of GPUs."""

from __future__ import annotations

import re

import pytest

from headgate.reports import colours, pages
from headgate.reports.drawing import LEFT, RIGHT, WIDTH, GpuSpan, gpus_over_time, time_ticks


@pytest.mark.parametrize(
    ("span_s", "most", "labels"),
    [
        (0.5, 4, ["now"]),
        (3.0, 4, ["now", "1.0 s", "2.0 s", "3.0 s"]),
        (3600.0, 4, ["now", "15 min", "30 min", "45 min", "1 h"]),
        (3601.0, 4, ["now", "30 min", "1 h"]),
        (86400.0 * 3, 4, ["now", "1 d", "2 d", "3 d"]),
        (86400.0 * 365, 4, ["now", "160 d", "320 d"]),
        (60.0, 1, ["now", "1 min"]),
    ],
)
def test_ticks_are_round_times_and_not_too_many(
    span_s: float, most: int, labels: list[str]
) -> None:
    assert list(time_ticks(span_s, most).values()) == labels


@pytest.mark.parametrize("most", [1, 3, 8])
def test_ticks_stay_within_any_span(most: int) -> None:
    for power in range(12):
        for factor in (1.0, 1.7, 4.2):
            times = time_ticks(factor * 10**power, most)
            assert max(times) <= factor * 10**power
            assert len(times) <= most + 1


def test_spans_are_drawn_on_the_row_of_their_gpu_with_escaped_titles() -> None:
    spans = [
        GpuSpan(
            node="b",
            gpu=1,
            start_s=5.0,
            end_s=10.0,
            job="job-1",
            title="<job>",
            css_class="reserved",
        ),
        GpuSpan(node="a", gpu=0, start_s=0.0, end_s=5.0, job="job-9", title="run"),
    ]
    chart = gpus_over_time(spans, [("a", 1), ("b", 2)], 10.0, title="a & b")
    assert "&lt;job&gt;" in chart
    assert "<job>" not in chart
    assert 'aria-label="a &amp; b"' in chart
    middle = LEFT + (WIDTH - LEFT - RIGHT) / 2
    paths = re.findall(r'<path d="M([0-9.]+) ([0-9.]+)h([0-9.]+)v', chart)
    assert [(float(x), float(y)) for x, y, _ in paths] == [
        (pytest.approx(middle, abs=0.1), 23.0), (LEFT, 6.0),
    ]  # fmt: skip
    assert {float(width) for *_, width in paths} == {(WIDTH - LEFT - RIGHT) / 2}
    assert chart.count('class="idle"') == 3
    assert f'class="reserved" fill="{colours.fill("job-1")}"' in chart
    assert f'class="" fill="{colours.fill("job-9")}"' in chart


def test_columns_of_figures_are_aligned_to_the_right() -> None:
    rows = [
        ("fifo", "1,234.5 s", "2 min 40 s", "-", "93.2 s (9.0 to 95.1)", "64 GPUs, 6 jobs"),
        ("7", "0.2 s", "3 h", "0.951 &plusmn; 0.020", "+2.1 | 3.4", "8 GPUs, 2 jobs"),
    ]
    table = pages.grid([*"abcdef"], rows)
    assert re.findall(r'<th( class="n")?>', table) == ["", *[' class="n"'] * 4, ""]
    assert table.count('<td class="n">') == 8
