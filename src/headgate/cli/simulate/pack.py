"""`headgate pack`: recorded pods on recorded nodes, in random order, under one policy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headgate.base.errors import Problem, SpecError
from headgate.cli.common import output
from headgate.cli.common.settings import FormatOption, settle

PodsOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Recorded pods (Parquet).", show_default=False)
]
NodesOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Recorded nodes (Parquet).", show_default=False)
]


def pack(
    pods: PodsOption = None,
    nodes: NodesOption = None,
    policy: Annotated[str, typer.Option(metavar="NAME", help="Which policy.")] = "headgate",
    seed: Annotated[int, typer.Option(metavar="N", help="Random seed of the order.")] = 0,
    fmt: FormatOption = None,
) -> None:
    """Pack recorded pods on recorded nodes, in random order.

    Prints how much of the GPUs is allocated when as many GPUs were asked for as there are.
    """
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

    from headgate.experiments.packing import runs
    from headgate.experiments.packing.reading import read
    from headgate.experiments.packing.workload import ARRIVED

    as_json = settle(None, fmt).as_json
    where = files(pods, nodes)
    runs.check(policy)
    workload = read(*where)
    columns = (TextColumn("Packing"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with output.progress(*columns, as_json=as_json) as bar:
        task = bar.add_task("", total=ARRIVED)
        run = runs.PackingRun(policy, seed)
        found = runs.pack(workload, run, lambda arrived: bar.update(task, completed=arrived))
    if as_json:
        output.print_json(found.as_json())
        return
    output.print_facts(
        [
            ("Policy", policy),
            ("Nodes", f"{len(workload.nodes.gpus):,} with {sum(workload.nodes.gpus):,} GPUs"),
            ("Pods", f"{len(workload.pods):,}, {len(workload.demands):,} different"),
            ("GPUs allocated", f"{found.gpu_allocated_ratio:.2%} at an arrived load of 100 %"),
            ("GPUs fragmented", f"{found.fragmentation_ratio:.2%}"),
        ]
    )


def files(pods: Path | None, nodes: Path | None) -> tuple[Path, Path]:
    """Return both files; raise SpecError `usage` for those that are not given."""
    hint = "name the Parquet file: docs/packing.md"
    given = {"--pods": pods, "--nodes": nodes}
    if problems := [
        Problem(path=option, problem="is missing", hint=hint)
        for option, path in given.items()
        if path is None
    ]:
        raise SpecError(problems, code="usage")
    assert pods is not None, "checked above"
    assert nodes is not None, "checked above"
    return pods, nodes
