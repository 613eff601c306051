"""Routes for working directories: packages of files, and directories that the nodes share."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request

from headgate.api.bodies import pieces_of
from headgate.api.deps import ControllerDep, Pools, User, new_router
from headgate.api.responses import EscapedJSON

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


@router.get("/shared-directory")
async def shared_directory(
    controller: ControllerDep,
    pools: Pools,
    user: User,
    path: Annotated[str, Query(description="absolute path of the directory")],
    name: Annotated[str, Query(description="name of the marker, a file in it")],
    content: Annotated[str, Query(description="what the marker contains")],
) -> EscapedJSON:
    """Return whether all nodes that are up have a directory, as a marker in it shows."""
    check = controller.shared_directory
    return EscapedJSON(dict(await pools.run(pools.nodes, check, path, name, content, user=user)))
