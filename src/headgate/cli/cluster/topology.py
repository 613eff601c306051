"""`headgate topology`: draws how the cluster is connected, with the jobs in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headgate.base.errors import Problem, SpecError
from headgate.cli.common import output
from headgate.cli.common.settings import (
    DryRunOption,
    FormatOption,
    ProgramSettings,
    StateOption,
    settle,
)

if TYPE_CHECKING:
    from headgate.model.topology import ClusterTopology


def topology(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="A topology file: check and draw it.", show_default=False
        ),
    ] = None,
    put: Annotated[
        bool, typer.Option("--set", help="Put the file in force; runs stay where they are.")
    ] = False,
    reset: Annotated[
        bool, typer.Option("--reset", help="Return to the tree of racks, nodes and GPUs.")
    ] = False,
    nvidia_smi: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the output of `nvidia-smi topo -m` as the key `gpus`."
        ),
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the drawing as SVG to this file.")
    ] = None,
    dry_run: DryRunOption = False,
    state: StateOption = None,
    fmt: FormatOption = None,
) -> None:
    """Draw how the cluster is connected, with the jobs in it.

    With a FILE, checks and draws that topology instead, without a cluster; --set puts it in force.
    """
    settings = settle(state, fmt)
    if nvidia_smi is not None:
        _show_gpus(nvidia_smi, as_json=settings.as_json)
        return
    if put != (put and file is not None) or (reset and file is not None):
        option, text = ("--set", "requires a FILE") if put else ("--reset", "takes no FILE")
        raise SpecError([Problem(path=option, problem=text)], code="usage")
    view: dict[str, Any]
    links: list[dict[str, Any]] = []
    if file is None and not reset:
        with settings.client() as client:
            view, links = client.topology(), client.links()["links"]
    elif file is not None:
        view = _view_of(_read(file))
    if put or reset:
        _set(settings, file, dry_run=dry_run)
        return
    _show(view, links, svg, as_json=settings.as_json)


def _show_gpus(file: Path, *, as_json: bool) -> None:
    """Print how the GPUs of a node are connected, as the key `gpus` of a topology file."""
    from dataclasses import asdict

    from headgate.spec.document import read_text
    from headgate.spec.nvidia_topology import gpus_yaml, parse_nvidia_topology

    shape = parse_nvidia_topology(read_text(file), name=str(file))
    output.print_result(asdict(shape), *gpus_yaml(shape).split("\n"), as_json=as_json)


def _read(file: Path) -> ClusterTopology:
    """Return the topology of a file, or of a recorded map of hosts to switches."""
    if file.suffix == ".parquet":
        from headgate.traces.host_map import read_host_map

        return read_host_map(file)
    from headgate.spec import load_topology

    return load_topology(file)


def _set(settings: ProgramSettings, file: Path | None, *, dry_run: bool) -> None:
    from headgate.spec.document import read_text

    with settings.client() as client:
        client.set_topology("" if file is None else read_text(file), dry_run=dry_run)
    what = "the tree of racks" if file is None else str(file)
    verb = "would be" if dry_run else "is"
    facts = {"file": None if file is None else str(file), "dry_run": dry_run}
    output.print_result(facts, f"{what} {verb} in force", as_json=settings.as_json)


def _view_of(given: ClusterTopology) -> dict[str, Any]:
    """Return the view of a topology whose nodes have all joined, without jobs."""
    from headgate.api.topology import topology_view
    from headgate.machine import apply
    from headgate.model import Gpu, Node
    from headgate.model.topology import ClusterTree
    from headgate.protocol import NodeJoined, TopologyChanged
    from headgate.state import State

    gpus: dict[str, int] = {}
    if isinstance(given, ClusterTree) and given.shapes:
        counts = [
            1 + max((gpu for level in shape.levels for group in level.groups for gpu in group),
                    default=-1)
            for shape in given.shapes
        ]  # fmt: skip
        gpus = {
            name: counts[shape]
            for name, shape in zip(given.names, given.shape, strict=True)
            if shape >= 0
        }
    state = State()
    apply(state, TopologyChanged(at=0.0, topology=given))
    for name in given.nodes:
        node = Node(id=name, rack="", gpus=(Gpu(memory_bytes=0),) * gpus.get(name, 0))
        apply(state, NodeJoined(at=0.0, node=node))
    return topology_view(state.freeze())


def _show(
    view: dict[str, Any], links: list[dict[str, Any]], svg: Path | None, *, as_json: bool
) -> None:
    import numpy as np

    from headgate.api.topology import topology_of
    from headgate.reports.topology import Occupancy, as_text
    from headgate.reports.topology_svg import as_svg

    occupancy = Occupancy(
        topology=topology_of(view),
        holders=[leaf["jobs"] for leaf in view["leaves"]],
        usable=[leaf["usable"] for leaf in view["leaves"]],
    )
    use = {link["link"]: link["use"] for link in links}
    topology = occupancy.topology
    load = np.array([use.get(topology.link_label(link), 0.0) for link in range(topology.links)])
    shown = load if links else None
    if svg is not None:
        try:
            svg.write_text(as_svg(occupancy, shown), encoding="utf-8")
        except OSError as error:
            raise output.cannot_write(svg, error) from error
    if as_json:
        output.print_json(view)
    else:
        output.print_text(*as_text(occupancy, shown).split("\n"))
