"""Routes that change the tree of queues, and move jobs in it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request

from headgate.api.bodies import text_of
from headgate.api.deps import ControllerDep, DryRun, Pools, User, new_router
from headgate.spec.queues import load_queues

router = new_router()
Body = dict[str, Any]


@router.put("/queues")
async def set_queues(
    request: Request, controller: ControllerDep, pools: Pools, user: User, dry_run: DryRun = False
) -> Body:
    """Have the queues of the queues file that is the body, and no others.

    Returns the names `added` and `removed`, and of each that is `changed`, the keys with the values
    before and after.
    """
    put = controller.administration.set_queues
    await pools.run(pools.journal, put, (), user=user, dry_run=True)  # rights, before the body
    async with pools.texts.slot(pools.uid):
        text = await text_of(request, "queues file")

        def load_and_put() -> Body:
            return put(load_queues(text), user=user, dry_run=dry_run)

        answer = await pools.run(pools.journal, load_and_put)
    return {**answer, "dry_run": dry_run}


@router.post("/jobs/{job}/queue")
async def assign(
    job: str,
    controller: ControllerDep,
    pools: Pools,
    user: User,
    name: Annotated[str, Query(description="of the queue")],
    dry_run: DryRun = False,
) -> Body:
    """Move a job to another queue; its runs continue."""
    await pools.run(
        pools.journal, controller.administration.assign, job, name, user=user, dry_run=dry_run
    )
    return {"id": job, "queue": name, "dry_run": dry_run}
