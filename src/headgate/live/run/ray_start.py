"""Starts a Ray node of a Ray program's own cluster, in the Python of that program.

`python ray_start.py SOCKET ARGUMENTS...` does what `ray start --block ARGUMENTS...` does, without
the parts that only a dashboard or a Ray client needs, which take time and fixed ports. With a
SOCKET (a path, or ''), a connection there is answered with the names of the detached actors, as a
JSON list, without those of Ray's own libraries. It ends with the process that started it.

The script uses the standard library and Ray alone, as Headgate may be missing in that Python.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

_PR_SET_PDEATHSIG = 1
_LOOK_S, _REGISTERED_S = 0.05, 30.0
_OLDEST = (2, 52)  # the first Ray whose clusters demand a token


def main() -> None:
    """Start the node of this process's arguments, and wait until it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    del sys.path[0]  # modules beside this script have names of their own
    ask, *arguments = sys.argv[1:]
    _check_version()
    _leave_out("start_api_server")
    _leave_out("start_ray_client_server")
    _leave_out("_register_shutdown_hooks")  # its processes end with it: a stop takes no seconds
    look_often()
    if ask:
        server = socket.socket(socket.AF_UNIX)
        server.bind(ask)
        server.listen(1)
        threading.Thread(target=_answer, args=(server,), daemon=True).start()
    from ray.scripts.scripts import cli

    cli(["start", "--block", *arguments], prog_name="ray")


def _check_version() -> None:
    try:
        import ray

        version = str(ray.__version__)
    except (ImportError, AttributeError) as error:
        _fail(f"{sys.executable}, the Python of the program, has no Ray: {error}")
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        _fail(f"{sys.executable} has Ray {version}; Headgate needs {oldest} or later")


def _leave_out(method: str) -> None:
    """Make a private method of Ray's node do nothing; a Ray without it runs as it stands."""
    from ray._private.node import Node

    if hasattr(Node, method):
        setattr(Node, method, lambda *_, **__: None)


def look_often() -> None:
    """Make Ray's node see within 50 ms that it is up; Ray looks once a second.

    A Ray without these private parts looks as it does by itself.
    """
    from ray._private import services

    look: Callable[[str, str], Any] | None = getattr(services, "get_node", None)
    if look is None:
        return

    def get_node(address: str, node: str) -> Any:
        with suppress(Exception):
            _wait_for_node(address, node)
        return look(address, node)

    services.get_node = get_node


def _wait_for_node(address: str, node: str) -> None:
    """Wait until a cluster lists a node, as long as Ray itself waits for that."""
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # compiled

    client, until = GcsClient(address=address), time.monotonic() + _REGISTERED_S
    while time.monotonic() < until:
        if any(each.hex() == node for each in client.get_all_node_info()):
            return
        time.sleep(_LOOK_S)


def _answer(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.sendall(json.dumps(_detached_actors()).encode())


def _detached_actors() -> list[str]:
    """Return the detached actors that are left, by name or class, but those of Ray's libraries."""
    import ray

    address = os.environ["RAY_ADDRESS"]
    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    actors = [actor for actor in _actors() if actor.is_detached]
    return sorted(actor.name or actor.class_name for actor in actors if not _is_of_ray(actor))


def _actors() -> list[Any]:
    """Return Ray's table of the running actors, whose public form shows less."""
    from ray._private.state import state
    from ray.core.generated.gcs_pb2 import ActorTableData  # type: ignore[attr-defined]  # generated

    accessor = state._connect_and_get_accessor()  # noqa: SLF001  # the table is not public
    table = accessor.get_actor_table(None, "ALIVE")
    return [ActorTableData.FromString(row) for row in table]


def _is_of_ray(actor: Any) -> bool:
    module: str = actor.function_descriptor.python_function_descriptor.module_name
    return module.partition(".")[0] == "ray"


def _fail(problem: str) -> NoReturn:
    sys.stdout.write(f"headgate: {problem}\n")
    sys.exit(1)


if __name__ == "__main__":
    main()
