"""Routes for datasets: put shard by shard, then committed as a whole, or abandoned."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query, Request

from headgate.api import views
from headgate.api.bodies import pieces_of
from headgate.api.deps import (
    ControllerDep,
    Cursor,
    DryRun,
    Limit,
    Pools,
    User,
    new_router,
    page_start,
)
from headgate.api.responses import EscapedJSON
from headgate.state.lookup import dataset_of

router = new_router()

_MOST_SHARDS = 1_000_000
Body = dict[str, Any]


@router.get("/datasets")
def datasets(controller: ControllerDep) -> EscapedJSON:
    """List the datasets by name."""
    snapshot = controller.snapshot()
    found = [dataset for _, dataset in sorted(snapshot.datasets.items())]
    return EscapedJSON({"datasets": [views.dataset_view(snapshot, each) for each in found]})


@router.get("/datasets/{name}")
def dataset(name: str, controller: ControllerDep) -> EscapedJSON:
    """Return one dataset."""
    snapshot = controller.snapshot()
    return EscapedJSON(views.dataset_view(snapshot, dataset_of(snapshot, name)))


@router.get("/datasets/{name}/shards")
def shards(
    name: str, controller: ControllerDep, cursor: Cursor = None, limit: Limit = 1000
) -> EscapedJSON:
    """List the shards of a dataset, in order, with the nodes that hold them."""
    snapshot = controller.snapshot()
    found = dataset_of(snapshot, name).shards
    start = page_start(cursor, len(found)) or 0
    page = [views.shard_view(snapshot, shard) for shard in found[start : start + limit]]
    after = str(start + limit) if start + limit < len(found) else None
    return EscapedJSON({"shards": page, "next": after})


@router.put("/datasets/{name}/shards/{index}")
async def put_shard(
    name: str,
    index: Annotated[int, Path(ge=0, lt=_MOST_SHARDS)],
    request: Request,
    controller: ControllerDep,
    pools: Pools,
    user: User,
    replicas: Annotated[int, Query(ge=1)] = 2,
) -> Body:
    """Place one shard, whose bytes are the body; it is invisible before the commit."""
    pieces = pieces_of(request)
    place = controller.put_shard
    placed = await pools.run(
        pools.uploads, place, name, index, pieces, replicas=replicas, user=user
    )
    return dict(placed)


@router.post("/datasets/{name}/commit")
async def commit(
    name: str,
    shards: Annotated[int, Query(ge=1, le=_MOST_SHARDS)],
    controller: ControllerDep,
    pools: Pools,
    user: User,
    public: Annotated[bool, Query(description="jobs of all users may read it")] = False,
) -> Body:
    """Make a dataset of `shards` shards visible."""
    commit = controller.commit_dataset
    made = await pools.run(pools.journal, commit, name, shards=shards, user=user, public=public)
    size_bytes = sum(shard.size_bytes for shard in made.shards)
    return {"name": made.name, "shards": len(made.shards), "size_bytes": size_bytes}


@router.post("/datasets/{name}/abandon")
async def abandon(name: str, controller: ControllerDep, pools: Pools, user: User) -> Body:
    """Remove the shards placed for a dataset that will not be committed."""
    await pools.run(pools.nodes, controller.abandon_dataset, name, user=user)
    return {"name": name}


@router.delete("/datasets/{name}")
async def remove(
    name: str,
    controller: ControllerDep,
    pools: Pools,
    user: User,
    dry_run: DryRun = False,
) -> Body:
    """Remove a dataset and its replicas."""
    dataset_of(controller.snapshot(), name)
    await pools.run(pools.nodes, controller.remove_dataset, name, user=user, dry_run=dry_run)
    return {"name": name}
