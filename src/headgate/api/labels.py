"""Routes that label nodes."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request

from headgate.api.bodies import text_of
from headgate.api.deps import ControllerDep, DryRun, Pools, User, new_router
from headgate.planning.scaling.labelling import LabelChange
from headgate.spec.labels_file import load_labels

router = new_router()
Body = dict[str, Any]


@router.post("/nodes/{node}/labels")
async def label(
    node: str,
    controller: ControllerDep,
    pools: Pools,
    user: User,
    add: Annotated[list[str], Query(default_factory=list, description="labels")],
    remove: Annotated[list[str], Query(default_factory=list, description="names of labels")],
    dry_run: DryRun = False,
) -> Body:
    """Set labels of a node and remove others; return those that it has then."""
    change = LabelChange(add=tuple(add), remove=tuple(remove))
    found = await pools.run(
        pools.journal, controller.administration.label, {node: change}, user=user, dry_run=dry_run
    )
    return {"id": node, "labels": list(found[node]), "dry_run": dry_run}


@router.put("/labels")
async def set_labels(
    request: Request, controller: ControllerDep, pools: Pools, user: User, dry_run: DryRun = False
) -> Body:
    """Give nodes the labels of the labels file that is the body, and no others."""
    put = controller.administration.label
    await pools.run(pools.journal, put, {}, user=user, dry_run=True)  # rights, before the body
    async with pools.texts.slot(pools.uid):
        text = await text_of(request, "labels file")

        def load_and_put() -> Body:
            wanted = load_labels(text)
            changes = {node: LabelChange(add=labels, only=True) for node, labels in wanted.items()}
            found = put(changes, user=user, dry_run=dry_run)
            return {"nodes": [{"id": node, "labels": list(each)} for node, each in found.items()]}

        answer = await pools.run(pools.journal, load_and_put)
    return {**answer, "dry_run": dry_run}
