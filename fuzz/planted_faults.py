"""Faults planted in the source one at a time: which of them do the tests find?

    python fuzz/planted_faults.py write FILE [--only 3,17] [--jobs 1]
    python fuzz/planted_faults.py compare BEFORE AFTER

`write` plants each fault of `FAULTS` in a copy of the project, and runs the tests near the changed
module there, the nearest files first, until one fails, for at most 5 minutes; live tests are left
out. It writes a line of JSON for each fault: found, and by which test, missed, timed out; or that
the test fails without the fault, too, or that the fault no longer applies. Write a file before a
change of the tests and one after it: `compare` prints which faults are no longer found.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from importlib.util import cache_from_source
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "src/headgate"
LIMIT_S = 300.0
FOUND, MISSED, TIMED_OUT = "found", "missed", "timed out"
FAILS_ANYWAY, GONE = "its test fails without it, too", "no longer applies"
_NOT_COPIED = shutil.ignore_patterns(".git", ".venv", "build", ".hypothesis", ".*_cache")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/\S+\.py(?:::.*?)?)(?: - .*)?$", re.MULTILINE)


class Fault(NamedTuple):
    """A change of one text, which occurs once in a module, that breaks something."""

    module: str
    """A path below `src/headgate`."""
    old: str
    new: str
    breaks: str


FAULTS = (
    # --- machine
    Fault(
        "machine/admission.py",
        "if len(nodes) != self._widths.get(row, unit_size(self._view, row)):",
        "if len(nodes) > self._widths.get(row, unit_size(self._view, row)):",
        "a part of a gang starts",
    ),
    Fault(
        "state/quotas.py",
        "if used[row] + amount + (more[row] if more else 0) > limits[row]:",
        "if used[row] + amount + (more[row] if more else 0) >= limits[row]:",
        "a queue never reaches its ceiling",
    ),
    Fault(
        "machine/admission.py",
        "self._tasks.update(stops, moved, (start.task for start in starts))",
        "self._tasks.update(stops, moved)",
        "a task may start in two groups of a plan",
    ),
    Fault(
        "machine/lineage.py",
        "concerned.update(dict.fromkeys((task, *state.dependents.get(task, ()))))",
        "concerned[task] = None",
        "tasks after a requeued one are not blocked again",
    ),
    Fault(
        "machine/job_order.py",
        "if row >= job:",
        "if row > job:",
        "a job after an unknown one is accepted",
    ),
    Fault(
        "machine/job_order.py",
        "ended.append(row)",
        "pass",
        "jobs after a follower that is cancelled stay queued",
    ),
    Fault(
        "machine/running_limit.py",
        "room = limit - _in_flight(state, job)",
        "room = limit - _in_flight(state, job) + 1",
        "one task more than `max_running` is in flight",
    ),
    Fault(
        "machine/run_ends.py",
        "if count <= most:",
        "if count < most:",
        "a task is retried once less often",
    ),
    # --- state
    Fault(
        "state/ledger.py",
        "if free.at(node, kind) < amount:",
        "if free.at(node, kind) <= amount:",
        "a task that needs exactly what is left does not fit",
    ),
    Fault(
        "state/ledger.py",
        "self._book(task, demand, node, gpus, -sign)",
        "self._book(task, demand, node, gpus, sign)",
        "a trial that is rolled back books once more",
    ),
    Fault(
        "state/ledger.py",
        "return bool(gpus.free_milli[gpu] == WHOLE and gpus.free_bytes[gpu] == left)",
        "return bool(gpus.free_milli[gpu] == WHOLE)",
        "a GPU of which runs hold memory alone counts as free",
    ),
    Fault(
        "state/grants.py",
        "np.add.at(taken, node, amounts)",
        "taken[node] += amounts",
        "of several grants on a node the last one alone counts",
    ),
    Fault(
        "state/queued_jobs.py",
        "heapq.heappush(self._by_user.setdefault(user, []), (-priority, job))",
        "heapq.heappush(self._by_user.setdefault(user, []), (priority, job))",
        "a user's job of lowest priority is activated first",
    ),
    Fault(
        "state/stops.py",
        "self._by_task[task] = (*before, stop)[-STOPS_KEPT:]",
        "self._by_task[task] = (*before, stop)[:STOPS_KEPT]",
        "the first stops of a task are kept in place of the last",
    ),
    Fault(
        "state/moves.py",
        "if target != grant:",
        "if target >= 0:",
        "a move that is given up releases the grant of a run that stays",
    ),
    Fault(
        "state/compact.py",
        "state.archived_rows = state.first_waiting_job = 0",
        "state.first_waiting_job = 0",
        "the tables are compacted again and again",
    ),
    # --- planning
    Fault(
        "planning/place/serve.py",
        "self.ceilings.book(unit)",
        "pass",
        "reservations do not count below the ceilings of queues",
    ),
    Fault(
        "planning/place/ceilings.py",
        "unit.amounts(self._snapshot), -1)",
        "unit.amounts(self._snapshot))",
        "a unit that starts on its reservation counts three times",
    ),
    Fault(
        "planning/place/timetable.py",
        "np.maximum(self._free_again_at[rows], reservation.at + run_s)",
        "np.maximum(self._free_again_at[rows], reservation.at)",
        "reserved GPUs are free again when their reservation begins",
    ),
    Fault(
        "planning/place/timetable.py",
        "in_time: Bools = at + run_s <= self.reserved_from[rows] + SAME_INSTANT_S",
        "in_time: Bools = at + run_s <= self.reserved_from[rows] - SAME_INSTANT_S",
        "a run that ends exactly when a reservation begins does not fit",
    ),
    Fault(
        "planning/place/timetable.py",
        "when = free_at[here] if first else -free_at[here]",
        "when = free_at[here]",
        "a reservation takes the GPUs that are free first",
    ),
    Fault(
        "planning/place/choose/compact.py",
        "node = int(last[room[last].argmin()])",
        "node = int(last[room[last].argmax()])",
        "the last node of a unit is the roomiest",
    ),
    Fault(
        "planning/shares/debts.py",
        "owed: Floats = missed * kept + missing * memory_s * (1 - kept)",
        "owed: Floats = missed * kept - missing * memory_s * (1 - kept)",
        "a debt shrinks while GPUs are missing",
    ),
    Fault(
        "planning/shares/owners.py",
        "return int(self.held[kind, owner] - self.share[kind, owner])",
        "return int(self.share[kind, owner] - self.held[kind, owner])",
        "owners below their share lose slots",
    ),
    Fault(
        "planning/rounds/reclaim.py",
        "held.demand, -1)\n        quotas = self",
        "held.demand, 0)\n        quotas = self",
        "what is reclaimed still counts below the ceiling of its queue",
    ),
    Fault(
        "planning/moves/defrag_order.py",
        "usable = left[span] < turn",
        "usable = left[span] <= turn",
        "a unit moves to the leaves that it leaves",
    ),
    # --- policies
    Fault(
        "policies/ordered/waiting.py",
        "np.maximum.reduceat(self.estimates",
        "np.minimum.reduceat(self.estimates",
        "a gang is expected to end with its shortest task",
    ),
    Fault(
        "policies/offers/delay.py",
        "self._count[job] = self.count(job, gap) + 1",
        "self._count[job] = self.count(job, gap)",
        "a job that declines GPUs declines them forever",
    ),
    Fault(
        "policies/offers/places.py",
        "for node, held in held_bytes.items() if held == most)",
        "for node, held in held_bytes.items() if held)",
        "nodes with some of a task's bytes count as those with most",
    ),
    Fault(
        "policies/offers/preemption.py",
        "self._spare_runs = running - 1",
        "self._spare_runs = running",
        "a job may lose its last run",
    ),
    Fault(
        "policies/flow/windows.py",
        'np.searchsorted(LENGTHS_S, left_s + SAME_INSTANT_S, side="right") - 1',
        'np.searchsorted(LENGTHS_S, left_s + SAME_INSTANT_S, side="right")',
        "windows are rounded up",
    ),
    Fault(
        "policies/flow/preempt_by_price.py",
        "owed[winner] -= price",
        "pass",
        "a job pays nothing for the runs that are preempted for it",
    ),
    # --- spec
    Fault(
        "spec/forms.py",
        "above = (ordinal - columns,) if i else ()",
        "above = (ordinal - rows,) if i else ()",
        "rows and columns of a wavefront are swapped",
    ),
    Fault(
        "spec/topology_shapes.py",
        "for n in range(first, last + 1)]",
        "for n in range(first, last)]",
        "a pattern of names leaves out the last node",
    ),
    Fault(
        "spec/expansion.py",
        'if stage.pairs == "index" and len(set(counts)) > 1:',
        'if stage.pairs == "index" and len(set(counts)) > 2:',
        "data with different numbers of shards is paired by index",
    ),
    Fault(
        "spec/grace.py",
        "0 <= (seconds := parse_duration(value)) <= MOST_GRACE_S",
        "0 <= (seconds := parse_duration(value)) < MOST_GRACE_S",
        "the longest grace period is refused",
    ),
    # --- live
    Fault(
        "live/base/user_slots.py",
        "key=lambda one: (self._held[one], self._served.get(one, 0))",
        "key=lambda one: (self._served.get(one, 0), self._held[one])",
        "slots go to the user served longest ago, whatever each holds",
    ),
    Fault(
        "live/base/supervise.py",
        "self.failures = 1 if after_s >= self._steady_s else self.failures + 1",
        "self.failures = 1 if after_s < self._steady_s else self.failures + 1",
        "pauses between quick failures do not grow",
    ),
    Fault(
        "live/node/split.py",
        "file.seek(stop - 1)",
        "file.seek(stop)",
        "a shard that ends with a line has one line more",
    ),
    Fault(
        "live/base/log_limit.py",
        "end = (found.st_size - (limit_bytes - first)) // block * block",
        "end = (found.st_size - limit_bytes) // block * block",
        "a log keeps more than its limit",
    ),
)


# ------------------------------------------------------------------------------------- tests


class Imports:
    """Which modules of `src` and `tests` import which, read from their syntax.

    A package stands for the modules of which it passes on names, and a test imports what the
    helpers of the tests that it imports do.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        tests = sorted(root.glob("tests/**/*.py"))
        files = {_dotted(path.relative_to(root / "src")): path for path in _sources(root)}
        files |= {_dotted(path.relative_to(root)): path for path in tests}
        self._faces = {name for name, path in files.items() if path.name == "__init__.py"}
        self._names = {name: _imported(path) for name, path in files.items()}
        self._tests = [
            path for path in tests if path.name.startswith("test_") and not _is_live(path)
        ]

    def _origin(self, name: str) -> str:
        """Return the module in which a dotted name is defined, "" for one of others."""
        if name in self._names:
            return name
        module, _, last = name.rpartition(".")
        if module in self._faces:
            others = (each for each in self._names[module] if each != name)
            return self._origin(next((each for each in others if each.endswith(f".{last}")), ""))
        return module if module in self._names else ""

    @cached_property
    def _modules(self) -> dict[str, set[str]]:
        """The modules that each module imports."""
        return {name: {*map(self._origin, names)} for name, names in self._names.items()}

    def _of_test(self, name: str, seen: set[str]) -> Iterator[str]:
        for module in sorted(self._modules[name] - seen):
            seen.add(module)
            if module.startswith("tests."):
                yield from self._of_test(module, seen)
            else:
                yield module

    @cached_property
    def _by_test(self) -> dict[Path, set[str]]:
        root = self._root
        return {t: {*self._of_test(_dotted(t.relative_to(root)), set())} for t in self._tests}

    def near(self, module: str) -> list[str]:
        """Return the test files near a module (a path below the package), the nearest first.

        Those of its name, the others of its package, then those that import it; where none does,
        those that import a module that imports it, and so on.
        """
        mirror = self._root / "tests" / Path(module).parent / f"test_{Path(module).name}"
        folder = mirror.parent
        while not folder.is_dir():
            folder = folder.parent
        known = {_dotted(Path("headgate", module))}
        importing, more = set[Path](), known
        while more and not importing:
            importing = {test for test, modules in self._by_test.items() if modules & known}
            more = {name for name, modules in self._modules.items() if modules & known} - known
            known |= more
        chosen = [test for test in self._tests if test.parent == folder or test in importing]
        name = mirror.name
        chosen.sort(key=lambda t: (t.name != name, t.parent != folder, t not in importing, t))
        return [str(test.relative_to(self._root)) for test in chosen]


def _sources(root: Path) -> list[Path]:
    return sorted((root / PACKAGE).rglob("*.py"))


def _dotted(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _imported(path: Path) -> list[str]:
    """Return the dotted names that a file imports."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def _is_live(path: Path) -> bool:
    """Return whether all tests of a file are marked live."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            return "pytest.mark.live" in ast.unparse(node.value)
    return False


# ------------------------------------------------------------------------------------- the copy


class Copy:
    """A copy of the project, and an environment in which Python imports that in its place."""

    def __init__(self, folder: Path) -> None:
        """Copy what is compiled, too; the other packages are those of the Python that runs this."""
        self.root, self._output = folder / "project", folder / "output"
        shutil.copytree(ROOT, self.root, symlinks=True, ignore=_NOT_COPIED)
        self._bin = folder / "venv" / "bin"
        venv.create(folder / "venv", symlinks=True)
        packages = dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
        own = sysconfig.get_path("purelib", vars={"base": str(folder / "venv")})
        Path(own, "copy.pth").write_text("\n".join((str(self.root / "src"), *packages)))
        script = self._bin / "headgate"
        first, _, rest = Path(sys.executable).with_name("headgate").read_text().partition("\n")
        script.write_text(f"{first[:2]}{self._bin / 'python'}\n{rest}")
        script.chmod(0o755)

    def put(self, module: str, text: str) -> None:
        """Replace the text of a module."""
        path = self.root / PACKAGE / module
        path.write_text(text)
        Path(cache_from_source(str(path))).unlink(missing_ok=True)

    def failing(self, tests: Sequence[str]) -> str | None:
        """Run tests until one fails; return it, None if all pass.

        Raises TimeoutError after `LIMIT_S`, and RuntimeError if pytest itself fails.
        """
        run = [self._bin / "python", "-m", "pytest", "-x", "-q", "-m", "not live"]
        with self._output.open("wb") as output:
            process = subprocess.Popen(
                [*run, "-p", "no:cacheprovider", *tests],
                cwd=self.root,
                env={**os.environ, "PYTHONHASHSEED": "0"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                code = process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                raise TimeoutError from None
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if code in (0, 5):  # 5: all are deselected
            return None
        text = self._output.read_text(errors="replace")
        failed = _FAILED.search(text, max(0, text.rfind("short test summary info")))
        if failed is None:
            raise RuntimeError(f"pytest ended with {code}:\n{text[-4000:]}")
        return failed[1]


def planted(fault: Fault, source: str) -> str | None:
    """Return the text of a module with a fault, None where the fault no longer applies."""
    return source.replace(fault.old, fault.new) if source.count(fault.old) == 1 else None


def outcome(fault: Fault, tests: Sequence[str]) -> tuple[str, str]:
    """Return what tests make of a fault, and the test that fails, "" if none does."""
    with tempfile.TemporaryDirectory(prefix="planted-fault-", ignore_cleanup_errors=True) as folder:
        copy = Copy(Path(folder))
        source = (copy.root / PACKAGE / fault.module).read_text()
        text = planted(fault, source)
        if text is None:
            return GONE, ""
        copy.put(fault.module, text)
        try:
            test = copy.failing(tests)
            if test is None:
                return MISSED, ""
            copy.put(fault.module, source)
            return (FOUND if copy.failing([test]) is None else FAILS_ANYWAY), test
        except TimeoutError:
            return TIMED_OUT, ""


# ------------------------------------------------------------------------------------- commands


def write(arguments: argparse.Namespace) -> int:
    """Write what becomes of each fault to a file, and print it."""
    numbers = range(1, len(FAULTS) + 1)
    if arguments.only:
        numbers = [int(number) for number in arguments.only.split(",")]
    imports = Imports(ROOT)

    def entry(number: int) -> dict[str, Any]:
        fault, started = FAULTS[number - 1], time.monotonic()
        tests = imports.near(fault.module)
        what, by = outcome(fault, tests)
        took_s = round(time.monotonic() - started)
        return {
            "number": number,
            "module": fault.module,
            "breaks": fault.breaks,
            "outcome": what,
            "by": by,
            "files": len(tests),
            "seconds": took_s,
        }

    count = Counter[str]()
    with ThreadPool(arguments.jobs) as pool, arguments.file.open("w") as out:
        for each in pool.imap(entry, numbers):
            out.write(json.dumps(each) + "\n")
            out.flush()
            count[each["outcome"]] += 1
            text = f"{each['number']} {each['module']}: {each['breaks']}: {each['outcome']}"
            print(f"{text} {each['by']} ({each['seconds']} s)", flush=True)
    print(", ".join(f"{number} {what}" for what, number in count.items()))
    return 0


def compare(arguments: argparse.Namespace) -> int:
    """Print what becomes of the faults of two files, and return 1 if one is no longer found."""
    before, after = _read(arguments.before), _read(arguments.after)
    lost = 0
    for key in dict.fromkeys((*before, *after)):
        one, two = before.get(key, "not tried"), after.get(key, "not tried")
        lost += one == FOUND != two
        if one != two:
            print(f"{': '.join(key)}: {one}, then {two}")
    print(f"{lost} of {[*before.values()].count(FOUND)} found before are no longer found")
    return int(lost > 0)


def _read(file: Path) -> dict[tuple[str, str], str]:
    found = [json.loads(line) for line in file.read_text().splitlines()]
    return {(each["module"], each["breaks"]): each["outcome"] for each in found}


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    commands = parser.add_subparsers(required=True)
    each = commands.add_parser("write", help="write what becomes of each fault to a file")
    each.set_defaults(run=write)
    each.add_argument("file", type=Path)
    each.add_argument("--only", help="numbers of faults, from 1; default: all")
    each.add_argument("--jobs", type=int, default=os.cpu_count(), help="faults at the same time")
    each = commands.add_parser("compare", help="compare two files")
    each.set_defaults(run=compare)
    each.add_argument("before", type=Path)
    each.add_argument("after", type=Path)
    arguments = parser.parse_args()
    return int(arguments.run(arguments))


if __name__ == "__main__":
    sys.exit(main())
