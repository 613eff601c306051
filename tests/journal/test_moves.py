"""Moves in the journal: events as text, and recovery from a snapshot while runs move."""

from __future__ import annotations

from tests.sim.weather import LateStops, ride

from headgate.engine import Engine
from headgate.journal.codec import decode, encode
from headgate.journal.snapshots import decode_snapshot, encode_snapshot
from headgate.policies.ordered.fifo import FirstInFirstOut
from headgate.state import thaw
from headgate.state.moves import moving_tasks
from headgate.testing.digest import digest
from headgate.testing.random_moves import RandomMoves


def test_recovery_while_runs_move_gives_the_state_of_a_run_without_a_crash() -> None:
    recovered = 0
    for seed in range(4):
        watch = ride(seed, RandomMoves(FirstInFirstOut(), chance=0.9), kind=LateStops)
        batches = [tuple(decode(encode(event)) for event in batch) for batch in watch.batches]
        assert batches == watch.batches
        engine = Engine()
        for number, batch in enumerate(batches):
            engine.replay(batch)
            if recovered < 12 and moving_tasks(engine.state):
                stored = decode_snapshot(encode_snapshot(engine.snapshot()))
                again = Engine(thaw(stored, hypothetical=False))
                for later in batches[number + 1 :]:
                    again.replay(later)
                assert digest(again.state) == digest(watch.engine.state), (seed, number)
                recovered += 1
    assert recovered >= 5
