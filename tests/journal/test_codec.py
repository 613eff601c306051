"""Every event is decoded from the journal's text without loss."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases

from headgate.base.errors import InvariantBroken
from headgate.journal.codec import decode, encode
from headgate.model import Demand, RunId, SpeedCurve, Stage
from headgate.protocol import (
    Admitted,
    Event,
    JobCancelled,
    JobSubmitted,
    Plan,
    PlanAdmitted,
    PlanReady,
    Preempted,
    Timer,
    TimerFired,
    events,
)
from headgate.spec import expand, load_job

KINDS = [
    kind
    for kind in vars(events).values()
    if isinstance(kind, type) and issubclass(kind, Event) and kind not in (Event, PlanReady)
]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda values: st.lists(values) | st.dictionaries(st.text(), values),
)
st.register_type_strategy(  # Hypothesis does not know pydantic's JsonValue
    Stage, st.builds(Stage, params=st.dictionaries(st.text(), JSON))
)
st.register_type_strategy(  # not any numbers make a curve
    SpeedCurve, st.sampled_from([SpeedCurve((1,), (2.5,)), SpeedCurve((1, 4), (2.0, 3.0))])
)
st.register_type_strategy(  # CPUs are written as a float, exact for as many as a job can ask for
    Demand, st.builds(Demand, cpus_milli=st.integers(0, 10**9))
)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=cases(40))
@given(data=st.data())
def test_every_type_of_event_is_decoded_unchanged(kind: type[Event], data: st.DataObject) -> None:
    event = data.draw(st.from_type(kind))
    back = decode(encode(event))
    # By their text: it distinguishes -0.0 from 0.0 and equates nan with nan, unlike equality.
    assert repr(back) == repr(event)


@given(at=st.floats(allow_nan=False))
def test_floats_are_decoded_exactly(at: float) -> None:
    back = decode(encode(TimerFired(at=at, timer=Timer.RETRY)))
    assert back.at.hex() == at.hex()


def test_an_event_is_one_readable_line() -> None:
    event = JobCancelled(at=1.5, job="sio-1", by="ann")
    assert encode(event) == '["JobCancelled",{"at":1.5,"job":"sio-1","by":"ann","now":false}]'


def test_program_of_a_job_file_is_decoded_unchanged() -> None:
    deep: Any = "bottom"
    for level in range(48):  # close to the 100 levels that a job file may have
        deep = {f"é{level}": [deep]}
    params = {
        "deep": deep,
        "big": 10**40,
        "small": -0.0,
        "text": "\u2028\t",
        "none": None,
        "no": False,
    }
    job = {"tasks": {"count": 2, "iterations": 3, "run": "m:f", "params": params}}
    job |= {"update": {"run": "cat {shards}"}, "envs": {"B": "", "A": "ü"}}
    job_file = load_job(json.dumps(job, ensure_ascii=False))
    submitted = expand(job_file, job_id="j", user="u", datasets={}, file_sizes={})
    event = JobSubmitted(at=1.0, job=submitted)
    back = decode(encode(event))
    assert back == event
    assert repr(back) == repr(event)
    assert encode(event).count("cat {shards}") == 1, (
        "a stage is stored once, however often it comes"
    )


def test_admitted_steps_are_journaled_and_plans_never() -> None:
    with pytest.raises(InvariantBroken, match="not fit for the journal"):
        encode(PlanReady(at=1.0, seen=9, plan=Plan()))
    event = PlanAdmitted(
        at=1.0,
        starts=(Admitted(run=RunId("sio-1", 2, 3), node="n1", gpus=(0, 1)),),
        stops=(Preempted((RunId("sio-2", 0, 1),), "PreemptedFor(sio-1)"),),
        memo={"skips": {"sio-1": 4.0}},
        node_memo={"swrr": {"n1": -7.8}},
    )
    assert decode(encode(event)) == event
    assert '[["sio-1",2,3],"n1",[0,1]]' in encode(event)
    assert '[[["sio-2",0,1]],"PreemptedFor(sio-1)","",""]' in encode(event)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('["JobRenamed",{"at":1.0}]', "unknown kind of event"),
        ('{"at":1.0}', "unknown kind of event"),
        ("", "unknown kind of event"),
        ('["TimerFired",{"at":1.0}]', r"TimerFired\.timer: Field required"),
        ('["TimerFired",{"at":1.0,"timer":"7"}]', r"TimerFired\.timer: Input should be 'retry'"),
        ('["TimerFired",{"at":1.0,"tim', "TimerFired: Invalid JSON"),
    ],
)
def test_text_that_is_no_event_is_rejected_with_a_message(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        decode(text)


@pytest.mark.parametrize("job", ["\ud800", 7])
def test_event_that_could_not_be_decoded_is_not_encoded(job: str) -> None:
    with pytest.raises(InvariantBroken, match="not fit for the journal"):
        encode(JobCancelled(at=1.0, job=job, by="ann"))


def test_event_of_an_unknown_type_is_not_encoded() -> None:
    with pytest.raises(InvariantBroken, match="not fit for the journal"):
        encode(Event(at=1.0))
