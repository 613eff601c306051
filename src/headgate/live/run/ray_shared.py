"""Runs a Ray program on a Ray cluster that others use, too, inside a placement group.

`python ray_shared.py SETTINGS` is a driver of the cluster at RAY_ADDRESS. SETTINGS, a JSON file,
has the `script` and its `args`, the `bundles` (of each node its Ray id, and what the program holds
there), the `versions` of Ray and Python that the cluster has, the variables `envs`, and a
`directory`. The script runs in a Ray task on the first bundle. All tasks and actors of the program
stay in the bundles, and end with it. The exit status is the script's; if the bundles cannot be had,
as others use what is in them, the file `refused` in the directory says so.

It uses the standard library and Ray alone, as Headgate may be missing in the program's Python.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import platform
import runpy
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

REFUSED, PID = "refused", "pid"
_PR_SET_PDEATHSIG = 1
_WAIT_S = 10.0
_REMOVED_S = 5.0
_LOOK_S = 0.1
_FAILED = 1


def main() -> int:
    """Run the program of these settings; return its exit status."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    settings = json.loads(Path(sys.argv[1]).read_text())
    del sys.path[0]  # modules beside this script have names of their own
    _check_versions(settings["versions"])
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group

    ray.init(address=os.environ["RAY_ADDRESS"], logging_level=logging.ERROR)
    group = placement_group(
        [amounts for _, amounts in settings["bundles"]],
        bundle_label_selector=[{"ray.io/node-id": node} for node, _ in settings["bundles"]],
    )
    if not group.wait(timeout_seconds=_WAIT_S):
        remove_placement_group(group)
        Path(settings["directory"], REFUSED).touch()
        return _FAILED
    try:
        return _run(group, settings)
    finally:
        left = _detached_actors()
        remove_placement_group(group)
        _report_removed(left)


def _check_versions(expected: Mapping[str, str]) -> None:
    try:
        import ray

        found = {"Ray": str(ray.__version__), "Python": platform.python_version()}
    except (ImportError, AttributeError) as error:
        _fail(f"{sys.executable}, the Python of the program, has no Ray: {error}")
    for name, version in expected.items():
        if found[name] != version:
            _fail(
                f"{sys.executable}, the Python of the program, has {name} {found[name]}, and the "
                f"Ray cluster has {version}: use the same, or 'mode: private'"
            )


def _run(group: Any, settings: Mapping[str, Any]) -> int:
    """Run the script in a task on the first bundle; return its exit status."""
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    strategy = PlacementGroupSchedulingStrategy(
        group, placement_group_bundle_index=0, placement_group_capture_child_tasks=True
    )
    script: Any = _script  # Ray's types know no functions with keywords
    task: Any = ray.remote(script).options(
        num_cpus=0,
        max_retries=0,
        scheduling_strategy=strategy,
        runtime_env={"env_vars": settings["envs"]},
    )
    signal.signal(signal.SIGTERM, lambda *_: _notify(Path(settings["directory"], PID)))
    log = str(Path("/proc/self/fd/1").resolve())
    program = settings["script"], settings["args"], settings["directory"]
    try:
        return int(ray.get(task.remote(*program, cwd=str(Path.cwd()), log=log)))
    except RayError as error:
        _say(f"the process of the program ended unexpectedly: {type(error).__name__}")
        return _FAILED


def _notify(file: Path) -> None:
    """Pass a notice on to the process of the script, once it has one."""
    with suppress(OSError, ValueError):
        os.kill(int(file.read_text()), signal.SIGTERM)


def _script(script: str, args: list[str], directory: str, *, cwd: str, log: str) -> int:
    """Run a script in this process, a worker of Ray, as if it were its own; return its status."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the script's own handler may follow
    Path(directory, PID).write_text(str(os.getpid()))
    os.chdir(cwd)
    sys.argv = [script, *args]
    sys.path.insert(0, str(Path(script).parent))
    _keep_connected()
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        sys.stderr.write(f"{error.code}\n")
        return _FAILED
    except Exception:  # noqa: BLE001  # user code: any exception is reported
        traceback.print_exc()
        return _FAILED
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def _keep_connected() -> None:
    """Make `ray.init` and `ray.shutdown` leave this process connected to its Ray cluster."""
    import ray

    connect, here = ray.init, ("auto", "local", ray.get_runtime_context().gcs_address)

    def init(address: str | None = None, *_: Any, **__: Any) -> Any:
        if address is not None and address not in here:
            raise ConnectionError(
                f"a program with 'mode: shared' has its Ray cluster, and cannot connect to "
                f"{address}: leave the address out"
            )
        return connect(ignore_reinit_error=True)

    ray.init, ray.shutdown = init, lambda *_, **__: None


def _detached_actors() -> dict[str, str]:
    """Return the detached actors that the program has left: their names, by id."""
    import ray

    job = ray.get_runtime_context().get_job_id()
    return {
        actor: str(facts["Name"] or facts["ActorClassName"])
        for actor, facts in _actors().items()
        if facts["IsDetached"] and facts["JobID"] == job and facts["State"] != "DEAD"
    }


def _actors() -> dict[str, Any]:
    from ray._private import state  # there is no public API without a dashboard

    found: dict[str, Any] = state.actors()
    return found


def _report_removed(actors: Mapping[str, str]) -> None:
    """Report the detached actors that have ended with the bundles; end those that have not."""
    until = time.monotonic() + _REMOVED_S
    while actors and time.monotonic() < until:
        known = _actors()
        if all(known.get(actor, {}).get("State", "DEAD") == "DEAD" for actor in actors):
            break
        time.sleep(_LOOK_S)
    if actors:
        plural = "" if len(actors) == 1 else "s"
        _say(f"{len(actors)} detached actor{plural} removed: {', '.join(sorted(actors.values()))}")


def _say(text: str) -> None:
    sys.stderr.write(f"headgate: {text}\n")
    sys.stderr.flush()


def _fail(problem: str) -> NoReturn:
    _say(problem)
    sys.exit(_FAILED)


if __name__ == "__main__":
    sys.exit(main())
