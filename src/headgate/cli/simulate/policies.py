"""`headgate policies`: the list of policies and their parameters."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer

from headgate.app import POLICIES
from headgate.cli.common import output
from headgate.cli.common.settings import FormatOption, settle
from headgate.ports import Parameter, PolicyInfo, make_policy


def policies(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Show this one with its parameters.")
    ] = None,
    fmt: FormatOption = None,
) -> None:
    """List the policies, or show one with its source and parameters."""
    settings = settle(None, fmt)
    if name is not None:
        make_policy(POLICIES, name)  # an error for an unknown one
    listed = [info for info in POLICIES.values() if name in (None, info.name)]
    if settings.as_json:
        output.print_json({"policies": [_view(info) for info in listed]})
    elif name is not None:
        _show(listed[0])
    else:
        rows = [(i.name, i.idea if settings.wide else _first_clause(i.idea)) for i in listed]
        text = None if settings.wide else "IDEA"
        output.print_table(("POLICY", "IDEA"), rows, text=text)


def _first_clause(idea: str) -> str:
    return idea.partition("; ")[0]


def _show(info: PolicyInfo) -> None:
    output.print_facts((("Policy", info.name), ("Idea", info.idea), ("Source", info.source)))
    for p in info.parameters:
        bounds = "" if _range(p) is None else f", {_range(p)}"
        unit = "" if p.unit == "1" else f" {p.unit}"
        output.print_text("")
        output.print_wrapped(f"{p.name}: {p.meaning} (default {p.default_text}{unit}{bounds})")


def _view(info: PolicyInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "idea": info.idea,
        "source": info.source,
        "parameters": [
            {
                "name": p.name,
                "default": p.default,
                "above": _bound(p.above),
                "least": _bound(p.least),
                "unit": p.unit,
                "meaning": p.meaning,
                "choices": list(p.choices),
            }
            for p in info.parameters
        ],
    }


def _bound(number: float) -> float | None:
    """Return a lower bound, or None where there is none."""
    return number if math.isfinite(number) else None


def _range(parameter: Parameter) -> str | None:
    """Return the range of a parameter as text, such as `> 1`; None for no bound."""
    bounds = ((">", parameter.above), (">=", parameter.least))
    if parameter.choices:
        return f"one of {', '.join(parameter.choices)}"
    return ", ".join(f"{sign} {n:g}" for sign, n in bounds if math.isfinite(n)) or None
