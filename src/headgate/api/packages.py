"""Routes for packages: files of working directories, by their content."""

from __future__ import annotations

from typing import Any

from fastapi import Request

from headgate.api.bodies import pieces_of
from headgate.api.deps import ControllerDep, Pools, User, new_router

router = new_router()
Body = dict[str, Any]


@router.get("/packages/{digest}")
async def package(digest: str, controller: ControllerDep, pools: Pools, user: User) -> Body:
    """Return the size of a package that the caller has sent, and keep it for another week."""
    return dict(await pools.run(pools.nodes, controller.use_package, digest, user=user))


@router.put("/packages/{digest}")
async def put_package(
    digest: str, request: Request, controller: ControllerDep, pools: Pools, user: User
) -> Body:
    """Store a package: a tar archive whose SHA-256 is `digest`."""
    pieces = pieces_of(request)
    return dict(await pools.run(pools.uploads, controller.put_package, digest, pieces, user=user))
