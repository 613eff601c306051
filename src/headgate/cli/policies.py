"""`headgate policies`: the list of policies and their parameters."""

from __future__ import annotations

import math
from typing import Any

from headgate.app import POLICIES
from headgate.cli import output
from headgate.cli.settings import FormatOption, settle
from headgate.ports import Parameter, PolicyInfo


def policies(fmt: FormatOption = None) -> None:
    """List the policies and their parameters."""
    if settle(None, fmt).as_json:
        output.print_json({"policies": [_view(info) for info in POLICIES.values()]})
        return
    output.print_table(
        ("POLICY", "IDEA", "SOURCE"), ((i.name, i.idea, i.source) for i in POLICIES.values())
    )
    output.print_text("")
    output.print_table(
        ("POLICY", "PARAMETER", "DEFAULT", "RANGE", "UNIT", "MEANING"),
        (
            (info.name, p.name, f"{p.default:g}", _range(p), p.unit, p.meaning)
            for info in POLICIES.values()
            for p in info.parameters
        ),
    )


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
    return ", ".join(f"{sign} {n:g}" for sign, n in bounds if math.isfinite(n)) or None
