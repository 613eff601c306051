"""The words of `headgate why` for what tasks have used, beside what they ask for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headgate.base.text import enumerated
from headgate.base.units import format_seconds, format_size
from headgate.cli.common import output

View = dict[str, Any]

_LEAST_S = 0.05  # shorter times are shown as none


def sizing_facts(explanation: View) -> Iterator[tuple[str, str]]:
    """Yield what tasks like the one explained have used, and what would be enough, if known."""
    sizing = explanation["sizing"]
    if sizing is None:
        return
    runs = output.counted(sizing["runs"], "run")
    used = "; ".join(map(_used, sizing["amounts"]))
    text = f"{used}, in {runs}"
    less = [each for each in sizing["amounts"] if each["enough"] < each["asked"]]
    if less:
        enough = enumerated([f"{_amount(e, e['enough'])}{_of(e['resource'])}" for e in less])
        starts = _starts(explanation)
        text += f"; with {enough} it would start {starts}" if starts else f"; {enough} is enough"
    yield "Used before", text


def _starts(explanation: View) -> str:
    """Return how much sooner it would start with what is enough; nothing where it would not."""
    start, at = explanation["start"], explanation["sizing"]["starts_at"]
    if start is None or at is None:
        return ""
    if start["at"] is None:
        ahead_s = at - explanation["now"]
        return f"in {format_seconds(ahead_s)}" if ahead_s >= _LEAST_S else "now"
    sooner_s = start["at"] - at
    return f"{format_seconds(sooner_s)} sooner" if sooner_s >= _LEAST_S else ""


def _used(each: View) -> str:
    asked = _amount(each, each["asked"]) if each["asked"] else "none"
    used, enough = _amount(each, each["used"]), _amount(each, each["enough"])
    mean = " in the mean" if each["resource"] == "cpus" else ""
    text = f"asked {asked}{_of(each['resource'])}, used at most {used}{mean}"
    return text if each["used"] <= each["asked"] else f"{text} (ask for {enough})"


def _amount(each: View, amount: int) -> str:
    return f"{amount / 1000:.3g}" if each["resource"] == "cpus" else format_size(amount)


def _of(resource: str) -> str:
    names = {"cpus": " CPUs", "gpu_memory": " of GPU memory"}
    return names.get(resource, " of memory")
