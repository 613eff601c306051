"""Routes that drain nodes and resume them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from headgate.api.deps import ControllerDep, DryRun, Pools, User, in_pool
from headgate.api.views import drain_view

router = APIRouter()
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
    await in_pool(pools.journal, controller.drain, node, user=user, reason=reason, dry_run=dry_run)
    return {"id": node, "draining": drain_view(controller.snapshot(), node), "dry_run": dry_run}


@router.post("/nodes/{node}/resume")
async def resume(
    node: str, controller: ControllerDep, pools: Pools, user: User, dry_run: DryRun = False
) -> Body:
    """Let runs start on a draining node again."""
    await in_pool(pools.journal, controller.resume, node, user=user, dry_run=dry_run)
    return {"id": node, "draining": drain_view(controller.snapshot(), node), "dry_run": dry_run}
