"""Routes that drain nodes and resume them, and show how the cluster scales."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query

from headgate.api.deps import ControllerDep, DryRun, Pools, User, new_router
from headgate.api.views import drain_view
from headgate.foresight.nodes import shape_text
from headgate.model.scaling import Shape
from headgate.planning.scaling.scaler import wanted_now
from headgate.state import Snapshot

router = new_router()
Body = dict[str, Any]
_LONGEST_REASON = 1000


@router.post("/nodes/{node}/drain")
async def drain(
    node: str,
    controller: ControllerDep,
    pools: Pools,
    user: User,
    reason: Annotated[str, Query(max_length=_LONGEST_REASON, description="for users")] = "",
    dry_run: DryRun = False,
) -> Body:
    """Let no run start on a node; those that it has end by themselves."""
    await pools.run(
        pools.journal, controller.drain, node, user=user, reason=reason, dry_run=dry_run
    )
    return {"id": node, "draining": drain_view(controller.snapshot(), node), "dry_run": dry_run}


@router.post("/nodes/{node}/resume")
async def resume(
    node: str, controller: ControllerDep, pools: Pools, user: User, dry_run: DryRun = False
) -> Body:
    """Let runs start on a draining node again."""
    await pools.run(pools.journal, controller.resume, node, user=user, dry_run=dry_run)
    return {"id": node, "draining": drain_view(controller.snapshot(), node), "dry_run": dry_run}


@router.get("/scaling")
def scaling(controller: ControllerDep) -> Body:
    """Return the catalogue, the nodes on their way, those made and removed, and what would follow.

    `shapes` is null for a cluster that does not scale.
    """
    return scaling_view(controller.snapshot(), controller.now())


def scaling_view(snapshot: Snapshot, now: float) -> Body:
    """Return the state of scaling as JSON values."""
    fleet, found = snapshot.fleet, wanted_now(snapshot)
    catalogue = fleet.scaling
    return {
        "shapes": None if catalogue is None else [_shape_view(each) for each in catalogue.shapes],
        "orders": [
            {
                "order": key,
                "shape": order.shape,
                "since_s": now - order.at,
                "failures": order.failures,
                "message": order.message,
            }
            for key, order in fleet.orders.items()
        ],
        "made": [
            {"node": node, "order": key, "shape": shape}
            for node, (key, shape) in fleet.made.items()
        ],
        "removing": [{"node": node, "order": key} for key, node in fleet.removing.items()],
        "would_order": list(found.orders),
        "would_drain": list(found.drains),
        "unmet": list(found.unmet.values()),
    }


def _shape_view(shape: Shape) -> Body:
    return {
        "name": shape.name,
        "has": shape_text(shape),
        "cost_per_h": shape.cost_per_h,
        "ready_after_s": shape.ready_after_s,
        "max": shape.most,
    }
