"""Starts a Ray node of a Ray program's own cluster, in the Python of that program.

`python ray_start.py SOCKET ARGUMENTS...` does what `ray start --block ARGUMENTS...` does, without
the parts that only a dashboard or a Ray client needs, which take time and fixed ports. With a
SOCKET (a path, or ''), a connection there is answered with the names of the detached actors, as a
JSON list. It ends with the process that started it.

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
from typing import Any, NoReturn

_PR_SET_PDEATHSIG = 1
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


def _answer(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.sendall(json.dumps(_detached_actors()).encode())


def _detached_actors() -> list[str]:
    """Return the named actors: those that are not detached have ended with the program."""
    import ray
    from ray.util import list_named_actors

    address = os.environ["RAY_ADDRESS"]
    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    found: list[Any] = list_named_actors(all_namespaces=True)
    return sorted(str(actor["name"]) for actor in found)


def _fail(problem: str) -> NoReturn:
    sys.stdout.write(f"headgate: {problem}\n")
    sys.exit(1)


if __name__ == "__main__":
    main()
