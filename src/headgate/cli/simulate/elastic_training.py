"""`headgate simulate --deadlines`: elastic training jobs of a trace, which have deadlines."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from headgate.base.errors import Problem, SpecError, nearest
from headgate.base.text import visible_values
from headgate.cli.common import output

DeadlinesOption = Annotated[
    bool,
    typer.Option("--deadlines", help="With --trace: jobs are elastic and have deadlines."),
]
ThroughputsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="With --deadlines: measured throughputs (Parquet).",
        show_default="those of ElasticFlow",
    ),
]
ServersOption = Annotated[
    int | None, typer.Option(metavar="N", help="With --trace: servers, instead of --gpus.")
]
GpusPerServerOption = Annotated[
    int | None, typer.Option(metavar="N", help="With --servers: GPUs of each.")
]
GpuTypeOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="With --deadlines: the type of all GPUs.")
]
RulesOption = Annotated[
    str | None,
    typer.Option(
        metavar="elasticflow|plain",
        help="With --deadlines: when decisions are made, and what changes cost.",
        show_default="elasticflow",
    ),
]
_MOST_GPUS = 1_000_000


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """The options as given, None where they are not."""

    throughputs: Path | None
    servers: int | None
    gpus_per_server: int | None
    gpu_type: str | None
    rules: str | None

    def gpus(self, gpus: int | None) -> int | None:
        """Return the number of GPUs: as given, or of all servers; raise SpecError `usage`."""
        servers, each = self.servers, self.gpus_per_server
        if servers is None and each is None:
            return gpus
        wrong = []
        for option, other, number in (
            ("--servers", "--gpus-per-server", servers),
            ("--gpus-per-server", "--servers", each),
        ):
            if number is None:
                wrong.append((option, f"is required with {other}", ""))
            elif not 1 <= number <= _MOST_GPUS:
                wrong.append((option, f"must be from 1 to {_MOST_GPUS}, not {number}", ""))
        if gpus is not None:
            wrong.append(("--gpus", "is given twice", "leave it out, or --servers"))
        if wrong:
            raise _usage(wrong)
        assert servers is not None, "checked above"
        assert each is not None, "checked above"
        return servers * each

    def problems(self) -> list[Problem]:
        """Return what is wrong where there are no deadlines."""
        given = {
            "--throughputs": self.throughputs,
            "--gpu-type": self.gpu_type,
            "--rules": self.rules,
        }
        return [
            Problem(path=option, problem="requires --deadlines", hint="docs/deadlines.md")
            for option, value in given.items()
            if value is not None
        ]

    def simulate(
        self,
        trace: Path | None,
        gpus: int | None,
        policy: str | None,
        vc: str | None,
        *,
        other: Mapping[str, object],
        as_json: bool,
    ) -> None:
        """Simulate the jobs of a trace, and print the figures."""
        from headgate.planning.deadlines import ALLOCATORS
        from headgate.sim.deadlines import RULES, figures, simulate
        from headgate.traces.training import THROUGHPUTS, read_training

        name = self.rules or "elasticflow"
        self._check(trace, gpus, policy, other)
        assert trace is not None, "checked above"
        assert self.gpu_type is not None, "checked above"
        assert gpus is not None, "checked above"
        assert policy is not None, "checked above"
        rules = RULES[name]
        throughputs = self.throughputs or THROUGHPUTS
        recorded = read_training(trace, throughputs, vc=vc, gpu_type=self.gpu_type)
        outcome = simulate(
            rules.jobs(recorded, self.gpu_type),
            ALLOCATORS[policy](gpus=gpus, slot_s=rules.slot_s),
            gpus=gpus,
            rules=rules,
            overheads=rules.overheads(gpus, policy),
            clock=time.process_time,
        )
        _print(figures(outcome, policy=policy, rules=name, gpus=gpus), as_json=as_json)

    def _check(
        self, trace: Path | None, gpus: int | None, policy: str | None, other: Mapping[str, object]
    ) -> None:
        from headgate.planning.deadlines import ALLOCATORS
        from headgate.sim.deadlines import RULES

        names = ", ".join(ALLOCATORS)
        wrong = [
            (option, "is required with --deadlines", hint)
            for option, value, hint in (
                ("--trace", trace, "jobs with ef_deadline_s: docs/deadlines.md"),
                ("--gpu-type", self.gpu_type, "as in the column gpu_type of --throughputs"),
                ("--gpus", gpus, "or --servers N --gpus-per-server N"),
                ("--policy", policy, f"one of {names}"),
            )
            if value is None
        ]
        if gpus is not None and not 1 <= gpus <= _MOST_GPUS:
            wrong.append(("--gpus", f"must be from 1 to {_MOST_GPUS}, not {gpus}", ""))
        for option, chosen, known in (
            ("--policy", policy, ALLOCATORS),
            ("--rules", self.rules, RULES),
        ):
            if chosen is not None and chosen not in known:
                wrong.append((option, f"does not know {chosen!r}", nearest(chosen, known)))
        wrong += [
            (option, "has no meaning with --deadlines", "leave it out")
            for option, value in other.items()
            if value is not None
        ]
        if wrong:
            raise _usage(wrong)


def _usage(wrong: list[tuple[str, str, str]]) -> SpecError:
    problems = [Problem(path=path, problem=text, hint=hint) for path, text, hint in wrong]
    return SpecError(problems, code="usage")


def _print(found: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        output.print_json_line(visible_values(found))
        return
    output.print_text(f"Policy {found['policy']}, rules {found['rules']}, {found['gpus']} GPUs", "")
    output.print_table(("FIGURE", "VALUE"), _rows(found))


def _rows(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "jobs", f"{found['jobs']:,}"
    for key, name in (
        ("deadline_ratio", "in time"), ("deadline_bound", "in time if alone"),
        ("gpu_utilisation", "GPU utilisation"),
    ):  # fmt: skip
        yield name, "-" if found[key] is None else f"{found[key]:.1%}"
    yield "admitted on arrival", f"{found['accepted']:,}"
    yield "rejected on arrival", f"{found['rejected_at_admission']:,}"
    for code, count in found["rejected"].items():
        yield f"  {code}", f"{count:,}"
    yield "  in time all the same", f"{found['rejected_in_time']:,}"
    yield "promises broken", f"{found['promises_broken']:,}"
    yield "width changes", f"{found['resizes']:,}"
    took = found["decision_cpu_s"] / max(1, found["decisions"])
    yield "decisions", f"{found['decisions']:,}, {1000 * took:.2f} ms of CPU time each"
