"""Random small problems against OR-tools, on all cores, until one fails or all have passed.

    python fuzz/run.py [networks|laminar ...] [--seed 1] [--cases 100000] [--first 0]

Case n of a seed is always the same. A failure (a wrong answer, a crash, a case that never ends) is
made as small as dropping its parts can make it, and printed with the line that repeats it. The
certificate of every solution is checked, too.
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

from dice import Dice

KINDS = ("networks", "laminar")
PATIENCE_S = 60.0
SHRINKING_S = 120.0

PROCESSES = multiprocessing.get_context("fork")


def work(kind: Any, number: int, seed: int, cases: range, at: Any) -> None:
    """Check cases; what number each worker is at stands in `at`."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # the report tells it, once
    for case in cases:
        at[number] = case
        kind.check(kind.draw(Dice(seed, case)))
    at[number] = cases.stop


def run(name: str, seed: int, cases: range) -> int | None:
    """Check all cases, on all cores; return the one that failed, if any."""
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
            elif time.monotonic() - moved > PATIENCE_S:
                return min(seen)
        return next((int(at[n]) for n, worker in enumerate(workers) if worker.exitcode), None)
    finally:
        print()
        for worker in workers:
            end(worker)


def end(worker: BaseProcess) -> None:
    """End a process of ours, whatever it is doing."""
    worker.kill()
    worker.join()


def outcome(check: Callable[[Any], None], case: Any, *, loud: bool = False) -> int | None:
    """Check a case in a process of its own; return how it exits, None when it does not end."""
    child = PROCESSES.Process(target=alone, args=(check, case, loud))
    child.start()
    child.join(5.0)
    code = child.exitcode
    end(child)
    return code


def alone(check: Callable[[Any], None], case: Any, loud: bool) -> None:
    """Check a case; what fails is told by an exit code and, if loud, a traceback."""
    if not loud:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    check(case)


def shrunk(kind: Any, case: Any) -> Any:
    """Return a case that still fails, and that dropping any one part would mend."""
    until = time.monotonic() + SHRINKING_S
    while time.monotonic() < until:
        less = next((c for c in kind.smaller(case) if outcome(kind.check, c) != 0), None)
        if less is None:
            break
        case = less
    return case


def report(name: str, seed: int, number: int) -> None:
    """Print what failed, how to repeat it, and the least that fails."""
    kind = importlib.import_module(name)
    print(f"{name}: case {number} of seed {seed} fails; repeat it by")
    print(f"  python fuzz/run.py {name} --seed {seed} --first {number} --cases 1")
    case = shrunk(kind, kind.draw(Dice(seed, number)))
    print(f"The least that fails:\n  {case}", flush=True)
    code = outcome(kind.check, case, loud=True)
    if code != 1:
        print("It does not end." if code is None else f"It crashes: exit code {code}.")


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], help="both, unless said")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=100_000, help="of each kind")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    asked = parser.parse_args()
    for name in asked.kinds or KINDS:
        failed = run(name, asked.seed, range(asked.first, asked.first + asked.cases))
        if failed is not None:
            report(name, asked.seed, failed)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
