"""The topology of the cluster with the jobs in it, as JSON; and the routes for it."""

from __future__ import annotations

from typing import Any

from fastapi import Request

from headgate.api.bodies import text_of
from headgate.api.deps import ControllerDep, DryRun, Pools, User, new_router
from headgate.api.responses import EscapedJSON
from headgate.base.errors import SpecError
from headgate.model.topology import BadTopology, FatTree, Mesh, Topology, Tree
from headgate.planning.topology.fabric import Fabric
from headgate.spec import load_topology
from headgate.state import Snapshot

router = new_router()
Body = dict[str, Any]


@router.get("/topology")
def topology(controller: ControllerDep) -> EscapedJSON:
    """Return the topology in force, and the jobs on its leaves."""
    return EscapedJSON(topology_view(controller.snapshot()))


@router.put("/topology")
async def set_topology(
    request: Request, controller: ControllerDep, pools: Pools, user: User, dry_run: DryRun = False
) -> Body:
    """Put the topology file in force that is the body; an empty body: the tree of racks."""
    put = controller.set_topology
    await pools.run(pools.journal, put, None, user=user, dry_run=True)  # rights, before the body
    async with pools.texts.slot(pools.uid):
        text = await text_of(request, "topology file")

        def load_and_put() -> None:
            put(load_topology(text) if text.strip() else None, user=user, dry_run=dry_run)

        await pools.run(pools.journal, load_and_put)
    return {"dry_run": dry_run}


def topology_view(snapshot: Snapshot) -> Body:
    """Return the shape of the topology, and node, GPU, state and jobs of every leaf of that."""
    fabric = Fabric.of(snapshot)
    holders = _holders(snapshot, fabric)
    index = snapshot.gpus
    alive, shown = snapshot.nodes.alive.array(), fabric.shape.leaves
    leaves = []
    for leaf, (node, gpu) in enumerate(
        zip(fabric.leaf_node[:shown].tolist(), fabric.leaf_gpu[:shown].tolist(), strict=True)
    ):
        first = snapshot.nodes.first_gpu[node] if gpu >= 0 else gpu
        up = node >= 0 and bool(alive[node]) and not (gpu >= 0 and index.withheld[gpu])
        leaves.append(
            {
                "node": snapshot.node(node).id if node >= 0 else None,
                "gpu": gpu - first if gpu >= 0 else None,
                "usable": up,
                "jobs": holders.get(leaf, []),
            }
        )
    source = "racks" if snapshot.topology is None else "file"
    return {"source": source, **_shape_view(fabric.shape), "leaves": leaves}


def _holders(snapshot: Snapshot, fabric: Fabric) -> dict[int, list[str]]:
    """Return the jobs that hold each leaf, in order; O(tasks)."""
    found: dict[int, dict[str, None]] = {}
    for task in snapshot.holding():
        job, node = snapshot.job(snapshot.tasks.job[task]).id, snapshot.tasks.node[task]
        gpus = snapshot.grants.gpus[snapshot.tasks.grant[task]]
        first = snapshot.nodes.first_gpu[node]
        leaves = {int(fabric.gpu_leaf[first + gpu]) for gpu in gpus}
        if not gpus and fabric.end_leaf[node] == fabric.first_leaf[node] + 1:
            leaves = {int(fabric.first_leaf[node])}  # a host; where there are GPUs, those are shown
        for leaf in sorted(leaves - {-1}):
            found.setdefault(leaf, {})[job] = None
    return {leaf: list(jobs) for leaf, jobs in found.items()}


def _shape_view(topology: Topology) -> Body:
    match topology:
        case Tree():
            return {
                "kind": "tree",
                "level_names": list(topology.level_names),
                "labels": [topology.label(v) for v in range(topology.vertices)],
                "parents": topology.parent.tolist(),
                "levels": topology.level.tolist(),
                "bytes_per_s": [None, *topology.uplink[1:].tolist()],
            }
        case Mesh():
            return {
                "kind": "mesh",
                "shape": list(topology.shape),
                "wrap": list(topology.wrap),
                "bytes_per_s": topology.bandwidth.tolist(),
            }
        case FatTree():
            return {
                "kind": "fat_tree",
                "ports": topology.k,
                "bytes_per_s": topology.bandwidth.tolist(),
            }
        case _:
            raise AssertionError("unreachable: a fabric has one of these")


def topology_of(view: Body) -> Topology:
    """Return the topology of a view; SpecError for a view of another release."""
    names = [leaf["node"] or "" for leaf in view["leaves"]]
    rates = view["bytes_per_s"]
    try:
        match view["kind"]:
            case "tree":
                return Tree.from_parents(
                    view["parents"],
                    [1.0, *rates[1:]],
                    view["levels"],
                    level_names=view["level_names"],
                    labels=view["labels"],
                )
            case "mesh":
                return Mesh(view["shape"], wrap=view["wrap"], bandwidth=rates, names=names)
            case "fat_tree":
                return FatTree(view["ports"], rates, names=names)
            case kind:
                raise SpecError(f"the controller has a topology of an unknown kind: {kind}")
    except (KeyError, BadTopology) as error:
        raise SpecError(f"the controller's topology cannot be read: {error}") from error
