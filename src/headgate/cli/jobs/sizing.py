"""The words of `headgate why` for what tasks have used, beside what they ask for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headgate.base.text import enumerated
from headgate.base.units import format_size
from headgate.cli.common import output

View = dict[str, Any]


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
        fits = f"with {enough} it would fit now" if sizing["fits_now"] else f"{enough} is enough"
        text += f"; {fits}"
    yield "Used before", text


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
