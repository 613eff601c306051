"""Every event comes back from the journal's text as it went in."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import InvariantBroken
from headgate.journal.codec import decode, encode
from headgate.protocol import Event, JobCancelled, Placement, Plan, PlanReady, TimerFired, events
from headgate.protocol.plan import Refusal
from headgate.protocol.reasons import Undecided

KINDS = [
    kind
    for kind in vars(events).values()
    if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
]


def as_journaled(event: Event) -> Event:
    if isinstance(event, PlanReady):
        return replace(event, plan=replace(event.plan, refusals=()))
    return event


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_every_kind_of_event_comes_back(kind: type[Event], data: st.DataObject) -> None:
    event = data.draw(st.from_type(kind))
    back = decode(encode(event))
    # By their text: it tells apart what equality does not (-0.0) and joins what it parts (nan).
    assert repr(back) == repr(as_journaled(event))


@given(at=st.floats(allow_nan=False))
def test_floats_come_back_to_the_last_bit(at: float) -> None:
    back = decode(encode(TimerFired(at=at, cause=1)))
    assert back.at.hex() == at.hex()


def test_an_event_is_one_readable_line() -> None:
    event = JobCancelled(at=1.5, job="sio-1", by="ann")
    assert encode(event) == '["JobCancelled",{"at":1.5,"job":"sio-1","by":"ann"}]'


def test_refusals_stay_out() -> None:
    plan = Plan(
        placements=(Placement(task=1, node=2, gpus=(0, 1)),),
        refusals=(Refusal(reason=Undecided(), jobs=(3,)),),
    )
    event = PlanReady(at=1.0, cause=4, seen=9, plan=plan)
    assert "refusals" not in encode(event)
    assert decode(encode(event)) == event


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('["JobRenamed",{"at":1.0}]', "unknown kind of event"),
        ('{"at":1.0}', "unknown kind of event"),
        ("", "unknown kind of event"),
        ('["TimerFired",{"at":1.0}]', r"TimerFired\.cause: Field required"),
        ('["TimerFired",{"at":1.0,"cause":"7"}]', r"TimerFired\.cause: Input should be a valid"),
        ('["TimerFired",{"at":1.0,"cau', "TimerFired: Invalid JSON"),
    ],
)
def test_what_is_no_event_is_told(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        decode(text)


@pytest.mark.parametrize("job", ["\ud800", 7])
def test_what_would_not_come_back_is_not_written(job: str) -> None:
    with pytest.raises(InvariantBroken, match="not fit for the journal"):
        encode(JobCancelled(at=1.0, job=job, by="ann"))


def test_an_event_of_no_known_kind_is_not_written() -> None:
    with pytest.raises(InvariantBroken, match="not fit for the journal"):
        encode(Event(at=1.0))
