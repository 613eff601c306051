"""Checks that simulated and measured figures of the live comparison agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from headgate.experiments.flow.live import Comparison, MeasuredPolicy, Overhead, Side
from headgate.experiments.flow.tables import LOCALITIES
from headgate.experiments.frame.claims import Agreement

MAKESPAN_WITHIN = 0.20  # relative to the measured makespan
BYTES_WITHIN = 0.05  # relative to all bytes read live
TIED_WITHIN = 0.05  # makespans this close count as equal


def makespan_error(pair: MeasuredPolicy) -> float:
    """Return the relative error of the simulated makespan."""
    return pair.simulated.makespan_s / pair.measured.makespan_s - 1


def cells(pair: MeasuredPolicy) -> tuple[str, ...]:
    """Return the row of a pair: policy, makespans, their error, and MB read by locality."""
    simulated, measured = pair.simulated, pair.measured
    both = zip(simulated.read_bytes, measured.read_bytes, strict=True)
    return (
        pair.policy,
        "{:.1f} s ({:.1f} to {:.1f})".format(simulated.makespan_s, *pair.simulated_range_s),
        f"{measured.makespan_s:.1f} s",
        f"{makespan_error(pair):+.1%}",
        *(f"{s / 1e6:.1f} | {m / 1e6:.1f}" for s, m in both),
    )


def bytes_errors(pair: MeasuredPolicy) -> tuple[float, ...]:
    """Return simulated minus measured bytes per locality, relative to all bytes read live."""
    both = zip(pair.simulated.read_bytes, pair.measured.read_bytes, strict=True)
    return tuple((s - m) / max(1, pair.measured.total_bytes) for s, m in both)


def order(pairs: Sequence[MeasuredPolicy], side: str) -> list[str]:
    """Return the policies of one network by their makespans on a side, the least first."""
    ranked = sorted(pairs, key=lambda pair: (getattr(pair, side).makespan_s, pair.policy))
    return [pair.policy for pair in ranked]


def swapped(pairs: Sequence[MeasuredPolicy]) -> list[tuple[str, str]]:
    """Return the pairs of policies in opposite orders on both sides, without ties."""

    def gap(side: str, a: MeasuredPolicy, b: MeasuredPolicy) -> float:
        first, second = getattr(a, side).makespan_s, getattr(b, side).makespan_s
        return float((second - first) / min(first, second))

    found = []
    for a, b in combinations(pairs, 2):
        gaps = gap("simulated", a, b), gap("measured", a, b)
        if min(map(abs, gaps)) > TIED_WITHIN and gaps[0] * gaps[1] < 0:
            found.append((a.policy, b.policy))
    return found


def by_uplink(pairs: Sequence[MeasuredPolicy]) -> dict[float, list[MeasuredPolicy]]:
    """Return the pairs of each network, in order."""
    found: dict[float, list[MeasuredPolicy]] = {}
    for pair in pairs:
        found.setdefault(pair.uplink_mbit_per_s, []).append(pair)
    return found


def judge(comparison: Comparison) -> list[Agreement]:
    """Return all agreements, network by network."""
    return [
        agreement
        for uplink, pairs in by_uplink(comparison.pairs).items()
        for agreement in _agreements(f"{uplink:g}", pairs)
    ]


def _agreements(uplink: str, pairs: Sequence[MeasuredPolicy]) -> Iterator[Agreement]:
    wrong = [f"{pair.policy}: {text}" for pair in pairs for text in pair.wrong.values()]
    yield Agreement(
        id=f"results-{uplink}",
        claim=f"{uplink} Mbit/s: all results are correct",
        holds=not wrong,
        ours="; ".join(wrong) or "all are correct",
    )
    if len(pairs) > 1:
        orders = (" < ".join(order(pairs, side)) for side in ("simulated", "measured"))
        yield Agreement(
            id=f"order-{uplink}",
            claim=f"{uplink} Mbit/s: the same order of policies by makespan, ties within "
            f"{TIED_WITHIN:.0%} aside",
            holds=not swapped(pairs),
            ours="simulated {}, measured {}".format(*orders),
        )
    for pair in pairs:
        errors = bytes_errors(pair)
        yield Agreement(
            id=f"bytes-{uplink}-{pair.policy}",
            claim=f"{uplink} Mbit/s, {pair.policy}: bytes of each locality within "
            f"{BYTES_WITHIN:.0%} of all",
            holds=max(map(abs, errors)) <= BYTES_WITHIN,
            ours=", ".join(f"{n} {e:+.1%}" for n, e in zip(LOCALITIES, errors, strict=True)),
        )
        error = makespan_error(pair)
        yield Agreement(
            id=f"makespan-{uplink}-{pair.policy}",
            claim=f"{uplink} Mbit/s, {pair.policy}: makespan within {MAKESPAN_WITHIN:.0%}",
            holds=abs(error) <= MAKESPAN_WITHIN,
            ours=f"{error:+.1%}",
        )


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Return the overhead and the tables as JSON values."""
    tables = [
        {
            "name": f"live-{uplink:g}",
            "uplink_mbit_per_s": uplink,
            "policies": {
                pair.policy: {
                    "simulated": {
                        **_side(pair.simulated),
                        "makespan_range_s": list(pair.simulated_range_s),
                    },
                    "measured": _side(pair.measured),
                    "launch_overhead_s": _overhead(pair.overhead),
                    "wrong": dict(pair.wrong),
                }
                for pair in pairs
            },
        }
        for uplink, pairs in by_uplink(comparison.pairs).items()
    ]
    return {"launch_overhead_s": _overhead(comparison.overhead), "tables": tables}


def _overhead(overhead: Overhead) -> dict[str, float]:
    return {
        "decision": overhead.decision_s,
        "start": overhead.start_s,
        "gpu": overhead.gpu_s,
        "cpu": overhead.cpu_s,
    }


def _side(side: Side) -> dict[str, Any]:
    return {
        "makespan_s": side.makespan_s,
        "bytes": dict(zip(LOCALITIES, side.read_bytes, strict=True)),
    }
