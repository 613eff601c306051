"""Agent in the manner of `rsh`: runs a command on another node of a job with `launch: first`.

`python -I -S rsh_agent.py HOST COMMAND...` asks the hub of the job (`headgate.live.run.hub`),
passes the command's output on, and ends with its exit status; 255 for a failure of its own, as
`ssh`.

The script uses the standard library alone, since it must start fast.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import sys
from typing import Any, NoReturn

_CONNECT_S = 30.0


def main() -> None:
    """Run the command of this process's arguments."""
    arguments = sys.argv[1:]
    while arguments and arguments[0].startswith("-"):
        arguments.pop(0)  # an option for ssh without a value, such as -x
    if len(arguments) < 2:
        _fail("usage: HOST COMMAND...")
    host, *words = arguments
    hub = _hub()
    try:
        connection = socket.create_connection((hub["host"], hub["port"]), timeout=_CONNECT_S)
        connection.settimeout(None)
        hello = {"token": hub["token"], "host": host, "command": " ".join(words)}
        connection.sendall(json.dumps(hello).encode() + b"\n")
        for line in connection.makefile("rb"):
            _take(json.loads(line))
    except OSError as error:
        _fail(f"the first process of the job cannot be reached: {error}")
    _fail(f"the connection to {host} was lost")


def _hub() -> dict[str, Any]:
    try:
        with open(os.environ["HEADGATE_RENDEZVOUS"], "rb") as file:  # noqa: PTH123  # loads slowly
            hub: dict[str, Any] = json.load(file)
    except (KeyError, OSError):
        _fail("only a process of a running job with 'launch: first' can reach its other nodes")
    return hub


def _take(message: dict[str, Any]) -> None:
    """Pass output on, or end."""
    if "error" in message:
        _fail(message["error"])
    if "status" in message:
        sys.exit(message["status"])
    stream = sys.stdout if message["stream"] == 1 else sys.stderr
    stream.buffer.write(base64.b64decode(message["data"]))
    stream.buffer.flush()


def _fail(problem: str) -> NoReturn:
    sys.stderr.write(f"headgate: {problem}\n")
    sys.exit(255)


if __name__ == "__main__":
    main()
