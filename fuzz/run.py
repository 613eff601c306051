"""Check random cases, on all cores, until one fails or all pass.

    python fuzz/run.py [networks|laminar|storms ...] [--seed 1] [--cases 100000] [--first 0]

Small flow problems are compared with OR-tools; storms of jobs and faults pass under the policies.
Case n of a seed is always the same. A failure (a wrong solution, a crash, a case that does not end)
is shrunk by dropping parts, and printed with the command that repeats it. The certificate of every
solution is checked as well.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the oracles are the tests' own

from random_numbers import RandomNumbers

KINDS = {"networks": 100_000, "laminar": 100_000, "storms": 10_000}
"""The kinds of cases, and how many of each are checked by default."""
STALL_S = 60.0
SHRINKING_S = 120.0

PROCESSES = multiprocessing.get_context("fork")


def work(kind: Any, number: int, seed: int, cases: range, at: Any) -> None:
    """Check cases in a worker; `at[number]` is the case that the worker is checking."""
    os.dup2(
        os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno()
    )  # the report prints the error once
    for case in cases:
        at[number] = case
        kind.check(kind.draw(RandomNumbers(seed, case)))
    at[number] = cases.stop


def run(name: str, seed: int, cases: range) -> int | None:
    """Check all cases, on all cores; return the number of the one that failed, if any."""
    kind, cores = importlib.import_module(name), os.cpu_count() or 1
    at = PROCESSES.Array("q", [cases.start + n for n in range(cores)], lock=False)
    started = time.monotonic()
    workers = [
        PROCESSES.Process(target=work, args=(kind, n, seed, cases[n::cores], at))
        for n in range(cores)
    ]
    for worker in workers:
        worker.start()
    seen, moved = list(at), started
    try:
        while any(worker.exitcode is None for worker in workers):
            time.sleep(0.2)
            for n, worker in enumerate(workers):
                if worker.exitcode not in {None, 0}:
                    return int(at[n])
            if list(at) != seen:
                seen, moved = list(at), time.monotonic()
                done = sum(seen) // cores - cases.start
                rate = done / (moved - started)
                print(f"\r{name}: {done:,} of {len(cases):,}, {rate:,.0f}/s ", end="", flush=True)
            elif time.monotonic() - moved > STALL_S:
                return min(seen)
        return next((int(at[n]) for n, worker in enumerate(workers) if worker.exitcode), None)
    finally:
        print()
        for worker in workers:
            end(worker)


def end(worker: BaseProcess) -> None:
    """Kill a worker and wait for its end."""
    worker.kill()
    worker.join()


def outcome(check: Callable[[Any], None], case: Any, *, loud: bool = False) -> int | None:
    """Check a case in a separate process; return its exit code, None if it does not end in 5 s."""
    child = PROCESSES.Process(target=alone, args=(check, case, loud))
    child.start()
    child.join(5.0)
    code = child.exitcode
    end(child)
    return code


def alone(check: Callable[[Any], None], case: Any, loud: bool) -> None:
    """Check a case; a failure sets the exit code and, if loud, prints a traceback."""
    if not loud:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    check(case)


def shrunk(kind: Any, case: Any) -> Any:
    """Return a smaller case that fails, from which no part can be dropped (within SHRINKING_S)."""
    until = time.monotonic() + SHRINKING_S
    while time.monotonic() < until:
        less = next((c for c in kind.smaller(case) if outcome(kind.check, c) != 0), None)
        if less is None:
            break
        case = less
    return case


def report(name: str, seed: int, number: int) -> None:
    """Print the case that failed, the command that repeats it, and the shrunk case."""
    kind = importlib.import_module(name)
    print(f"{name}: case {number} of seed {seed} fails; repeat it by")
    print(f"  python fuzz/run.py {name} --seed {seed} --first {number} --cases 1")
    case = shrunk(kind, kind.draw(RandomNumbers(seed, number)))
    print(f"The smallest case that fails:\n  {case}", flush=True)
    code = outcome(kind.check, case, loud=True)
    if code != 1:
        print("It does not end." if code is None else f"It crashes: exit code {code}.")


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], help="default: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, help="of each kind; by default as in KINDS")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    arguments = parser.parse_args()
    for name in arguments.kinds or KINDS:
        cases = arguments.cases or KINDS[name]
        failed = run(name, arguments.seed, range(arguments.first, arguments.first + cases))
        if failed is not None:
            report(name, arguments.seed, failed)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
