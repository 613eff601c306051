"""A stored snapshot restores its state, and no pickled data is ever read."""

from __future__ import annotations

import io
import json
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sim.weather import world_of

from headgate.engine import Engine, drive
from headgate.journal import decode_snapshot, encode_snapshot
from headgate.model import Dataset, Shard
from headgate.policies.flow import TimelyFlow
from headgate.protocol import Timer
from headgate.state import State, check, thaw
from headgate.testing.digest import digest
from headgate.testing.random_worlds import random_state
from headgate.testing.storms import storm


def stored(state: State) -> State:
    return thaw(decode_snapshot(encode_snapshot(state.freeze())), hypothetical=False)


@settings(max_examples=150)
@given(seed=st.integers(0, 10**6))
def test_random_state_is_restored_exactly(seed: int) -> None:
    state = random_state(seed, every_kind=seed % 2 > 0)
    state.datasets = {"x": Dataset(name="x", user="ada", shards=(Shard(id="x:0", size_bytes=1),))}
    state.write_memo({"skips": {state.job(0).id: 3.0}})
    state.node_memos = {"swrr": {0: -1.5}}
    state.timers = {Timer.RETRY: state.now + 1.5}
    state.policy_failures, state.next_job = 2, 99
    again = stored(state)
    check(again)
    assert digest(again.freeze()) == digest(state.freeze())
    assert again.node_memos == state.node_memos
    assert (again.timers, again.policy_failures, again.next_job) == (state.timers, 2, 99)


def test_gpus_of_a_snapshot_without_models_have_those_of_their_nodes() -> None:
    state = random_state(3, every_kind=True)
    with np.load(io.BytesIO(encode_snapshot(state.freeze())), allow_pickle=False) as stored_arrays:
        arrays = dict(stored_arrays)
    models = [state.names.models[row] for row in arrays.pop("gpus.model").tolist()]
    rest = json.loads(arrays["rest"].tobytes())
    del rest[0]["models"]
    arrays["rest"] = np.frombuffer(json.dumps(rest).encode(), np.uint8)
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    again = thaw(decode_snapshot(file.getvalue()), hypothetical=False)
    check(again)
    assert any(models)
    current = np.concatenate(
        [
            np.arange(first, first + count)
            for first, count in zip(again.nodes.first_gpu, again.nodes.gpu_count, strict=True)
        ]
    )
    for row in current.tolist():
        assert again.names.models[again.gpus.model[row]] == models[row]


@pytest.mark.parametrize("seed", range(12))
def test_engine_restored_in_mid_storm_continues_like_the_original(seed: int) -> None:
    policy = TimelyFlow()
    weather = storm(seed, accepts=lambda job: policy.refuses(job) is None)
    world = world_of(weather, policy)
    engine, batches = Engine(), []
    drive(engine, world, observe=(lambda batch, commands: batches.append(batch),))
    for cut in range(0, len(batches), max(1, len(batches) // 5)):
        whole, first = Engine(), Engine()
        for batch in batches:
            whole.replay(batch)
        for batch in batches[:cut]:
            first.replay(batch)
        again = Engine(stored(first.state))
        for batch in batches[cut:]:
            again.replay(batch)
        check(again.state)
        assert digest(again.state) == digest(whole.state), (seed, cut)


def archive(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nonsense",
        pickle.dumps({"rest": b""}),
        archive(),
        archive(rest=np.frombuffer(b"[{}]", np.uint8)),
        archive(rest=np.array([{}], dtype=object)),
    ],
)
def test_bytes_that_are_no_snapshot_of_this_schema_are_rejected(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a snapshot"):
        decode_snapshot(data)


def test_truncated_snapshot_is_rejected() -> None:
    data = encode_snapshot(random_state(7).freeze())
    for length in range(0, len(data), len(data) // 40):
        with pytest.raises(ValueError, match="not a snapshot"):
            decode_snapshot(data[:length])
