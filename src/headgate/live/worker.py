"""The process in which tasks run, fed by an executor: one JSON line in per task, one out.

`python -m headgate.live.worker ANSWERS` reads requests on its stdin and answers on the descriptor
ANSWERS; stdout and stderr go to the log that a request names. It leads a process group of its own
and ends, with all of the group, when its stdin closes: so also when its executor dies.
"""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

_PLACEHOLDER = re.compile(r"(?<!\$)\{(shard|shards|output|outputs|index)\}")
_LONGEST_VARIABLE = 100_000  # Linux takes no longer string than 128 KiB


def main() -> None:
    """Serve requests until stdin closes."""
    answers = os.fdopen(int(sys.argv[1]), "w")
    requests = os.fdopen(os.dup(0))
    _leave_guard(requests.fileno(), answers.fileno())
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # a task's programs must not read our requests
    for line in requests:
        request = json.loads(line)
        _log_to(request["log"])
        os.chdir(request["directory"])
        error = _run(request)
        sys.stdout.flush()
        sys.stderr.flush()
        print(json.dumps({"error": error}), file=answers, flush=True)


def _leave_guard(requests: int, answers: int) -> None:
    """Fork a guard that waits for the other end to close and kills the group, itself too.

    A thread could not: a task may hold the interpreter for long, or leave processes of its own.
    """
    if os.fork() == 0:
        os.close(answers)
        hang_up = select.poll()
        hang_up.register(requests, 0)
        hang_up.poll()
        os.killpg(os.getpgrp(), signal.SIGKILL)


def _log_to(path: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def _run(request: dict[str, Any]) -> str:
    """Run one task; return what went wrong, or nothing."""
    if request["kind"] == "command":
        return _run_command(request)
    try:
        _run_function(request)
    except SystemExit as error:
        return f"the function ended with exit status {error.code}" if error.code else ""
    except Exception as error:  # noqa: BLE001  # it is users' code: whatever it raises is told
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"
    return ""


def _run_function(request: dict[str, Any]) -> None:
    from headgate.workloads.task import TaskContext, resolve  # NumPy: not for commands

    function = resolve(request["run"])
    outputs = tuple(Path(output) for output in request["outputs"])
    function(
        TaskContext(
            index=request["index"],
            count=request["count"],
            shards=tuple(Path(shard) for shard in request["shards"]),
            output=Path(request["output"]),
            outputs=outputs if len(outputs) > 1 else (),
            params=request["params"],
            gpus=tuple(request["gpus"]),
            checkpoint=Path(request["checkpoint"]) if request["checkpoint"] else None,
        )
    )


def _run_command(request: dict[str, Any]) -> str:
    shards, outputs = request["shards"], request["outputs"]
    values = {
        "shard": shlex.quote(shards[0]) if shards else "''",
        "shards": " ".join(shlex.quote(shard) for shard in shards),
        "output": shlex.quote(request["output"]),
        "outputs": " ".join(shlex.quote(output) for output in outputs),
        "index": str(request["index"]),
    }
    script = Path("command.sh")
    script.write_text(_PLACEHOLDER.sub(lambda match: values[match[1]], request["run"]) + "\n")
    variables = {
        "HEADGATE_SHARD": shards[0] if shards else "",
        "HEADGATE_SHARDS": "\n".join(shards),
        "HEADGATE_OUTPUT": request["output"],
        "HEADGATE_OUTPUTS": "\n".join(outputs),
        "HEADGATE_INDEX": values["index"],
    }
    if request["checkpoint"]:
        variables["HEADGATE_CHECKPOINT"] = request["checkpoint"]
    settings = {key: v for key, v in variables.items() if len(v.encode()) < _LONGEST_VARIABLE}
    status = subprocess.run(
        ["bash", str(script)],
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **settings},
    ).returncode
    if status < 0:
        return f"the command was ended by {signal.Signals(-status).name}"
    return f"the command ended with exit status {status}" if status else ""


if __name__ == "__main__":
    main()
