"""A process killed while it writes leaves whole batches: all that were reported as durable."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from headgate.journal import Journal
from headgate.protocol import NodeLost

# Appends batches of 1, 2, ... 40 events in turn, and says after each how many are durable.
WRITER = """
import sys
from pathlib import Path
from headgate.journal import Journal
from headgate.protocol import NodeLost
journal, last = Journal.open(Path(sys.argv[1])), 0
while True:
    for size in range(1, 41):
        last = journal.append([NodeLost(at=0.5, node=str(last + n)) for n in range(size)])
        if size == 20:
            journal.save_snapshot(last, b"state" * 20000)
        print(last, flush=True)
"""


@pytest.mark.parametrize("batches_seen", [1, 30, 250])
def test_a_killed_writer_leaves_whole_batches(tmp_path: Path, batches_seen: int) -> None:
    path = tmp_path / "journal.db"
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        durable = [int(next(writer.stdout)) for _ in range(batches_seen)]
        os.kill(writer.pid, signal.SIGKILL)
        durable += [int(line) for line in writer.stdout if line.endswith("\n")]

    with closing(Journal.open(path)) as journal:
        batches = list(journal.batches())
        assert [last for last, _ in batches][: len(durable)] == durable
        assert len(batches) - len(durable) in (
            0,
            1,
        )  # the last may be durable before it is reported
        assert [len(events) for _, events in batches] == [n % 40 + 1 for n in range(len(batches))]
        events = [event for _, event in journal.events()]
        assert events == [NodeLost(at=0.5, node=str(n)) for n in range(len(events))]

        assert journal.append([NodeLost(at=1.0, node="last")]) == len(events) + 1
        for seq, state in journal.snapshots():
            assert seq in [last for last, _ in batches]
            assert state == b"state" * 20000


def test_lock_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        next(writer.stdout)
        other = "from pathlib import Path; from headgate.journal import Journal; import sys\n"
        other += "try: Journal.open(Path(sys.argv[1]))\nexcept Exception as e: print(e.code)"
        second = subprocess.run(
            [sys.executable, "-c", other, str(path)], capture_output=True, text=True, check=True
        )
        assert second.stdout == "journal_locked\n"
        os.kill(writer.pid, signal.SIGKILL)
    Journal.open(path).close()
