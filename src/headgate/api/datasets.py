"""Routes for datasets: put shard by shard, then committed at once, or abandoned."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

from anyio import from_thread
from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool

from headgate.api import views
from headgate.api.deps import Held, User
from headgate.base.errors import HeadgateError
from headgate.decision.lookup import dataset_of

router = APIRouter()

_PIECE_BYTES = 1 << 20
Body = dict[str, Any]


@router.get("/datasets")
def datasets(controller: Held) -> Body:
    """List the datasets by name."""
    snapshot = controller.snapshot()
    found = [dataset for _, dataset in sorted(snapshot.datasets.items())]
    return {"datasets": [views.dataset_view(snapshot, dataset) for dataset in found]}


@router.get("/datasets/{name}")
def dataset(name: str, controller: Held) -> Body:
    """Return one dataset with its shards and the nodes that hold them."""
    snapshot = controller.snapshot()
    found = dataset_of(snapshot, name)
    return {
        **views.dataset_view(snapshot, found),
        "placement": views.shard_views(snapshot, found),
    }


@router.put("/datasets/{name}/shards/{index}")
async def put_shard(
    name: str,
    index: int,
    request: Request,
    controller: Held,
    user: User,
    replicas: Annotated[int, Query(ge=1)] = 2,
) -> Body:
    """Place one shard, whose bytes are the body; nobody sees it before the commit."""
    stream = request.stream()
    try:
        placed = await run_in_threadpool(
            controller.put_shard, name, index, _pieces(stream), replicas=replicas, user=user
        )
    except HeadgateError:
        async for _ in stream:  # the client sends everything before it reads the answer
            pass
        raise
    return dict(placed)


@router.post("/datasets/{name}/commit")
def commit(
    name: str,
    shards: Annotated[int, Query(ge=1)],
    controller: Held,
    user: User,
    public: Annotated[bool, Query(description="jobs of all users may read it")] = False,
) -> Body:
    """Make a dataset of so many shards visible."""
    made = controller.commit_dataset(name, shards=shards, user=user, public=public)
    size_bytes = sum(shard.size_bytes for shard in made.shards)
    return {"name": made.name, "shards": len(made.shards), "size_bytes": size_bytes}


@router.post("/datasets/{name}/abandon")
def abandon(name: str, controller: Held, user: User) -> Body:
    """Remove what was placed of a dataset that will not be committed."""
    controller.abandon_dataset(name, user=user)
    return {"name": name}


@router.delete("/datasets/{name}")
def remove(
    name: str,
    controller: Held,
    user: User,
    dry_run: Annotated[bool, Query(description="do all checks, change nothing")] = False,
) -> Body:
    """Remove a dataset and its replicas."""
    dataset_of(controller.snapshot(), name)
    controller.remove_dataset(name, user=user, dry_run=dry_run)
    return {"name": name}


def _pieces(stream: AsyncIterator[bytes]) -> Iterator[bytes]:
    """Yield, in a thread, pieces of a body that the event loop receives."""
    while piece := from_thread.run(_gather, stream):
        yield piece


async def _gather(stream: AsyncIterator[bytes]) -> bytes:
    gathered = bytearray()
    while len(gathered) < _PIECE_BYTES:
        piece = await anext(stream, None)
        if piece is None:
            break
        gathered += piece
    return bytes(gathered)
