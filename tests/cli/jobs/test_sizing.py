"""The words of `headgate why` for what tasks like one have used."""

from __future__ import annotations

from dataclasses import asdict, replace

from headgate.cli.jobs.sizing import sizing_facts
from headgate.foresight.sizing import Sizing, UsedAmount

GIB = 1 << 30
MEMORY = UsedAmount(resource="memory", asked=32 * GIB, used=6 * GIB, enough=8 * GIB)
CPUS = UsedAmount(resource="cpus", asked=8000, used=1500, enough=2000)
OVER = UsedAmount(resource="memory", asked=8 * GIB, used=12 * GIB, enough=16 * GIB)
UNASKED = UsedAmount(resource="gpu_memory", asked=0, used=GIB // 2, enough=GIB)


def text(sizing: Sizing | None, start: float | None = None) -> str:
    view = {
        "sizing": None if sizing is None else asdict(sizing), "start": {"at": start}, "now": 100.0,
    }  # fmt: skip
    return dict(sizing_facts(view)).get("Used before", "")


def test_what_was_used_is_shown_with_how_much_sooner_it_would_start() -> None:
    asked = "asked 32 GiB of memory, used at most 6 GiB, in 20 runs; "
    sizing = Sizing(runs=20, amounts=(MEMORY,), starts_at=160.0)
    sooner = "with 8 GiB of memory it would start 40 min sooner"
    assert text(sizing, start=2560.0) == asked + sooner
    assert text(sizing, start=160.0) == asked + "8 GiB of memory is enough"
    assert text(sizing) == asked + "with 8 GiB of memory it would start in 1 min"
    assert text(replace(sizing, starts_at=100.0)) == (
        asked + "with 8 GiB of memory it would start now"
    )


def test_what_was_used_is_shown_with_what_is_enough() -> None:
    assert text(Sizing(runs=3, amounts=(MEMORY, CPUS))) == (
        "asked 32 GiB of memory, used at most 6 GiB; asked 8 CPUs, used at most 1.5 in the mean, "
        "in 3 runs; 8 GiB of memory and 2 CPUs is enough"
    )


def test_use_of_more_says_what_to_ask_for() -> None:
    assert text(Sizing(runs=1, amounts=(OVER, UNASKED))) == (
        "asked 8 GiB of memory, used at most 12 GiB (ask for 16 GiB); "
        "asked none of GPU memory, used at most 512 MiB (ask for 1 GiB), in 1 run"
    )


def test_nothing_is_shown_without_a_difference() -> None:
    assert text(None) == ""
