"""Journals that earlier builds recorded open, and say what they said then."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.journal.record import RECORDED, facts

from headgate.engine import Engine
from headgate.journal import Journal, encode_snapshot
from headgate.live.durable import DurableEngine
from headgate.protocol import Event, PlanReady
from headgate.state import State, check

ADDED_SINCE = {
    "GpusWithheld", "MoveRequested", "NodeDraining", "NodeRemoved", "NodeResumed", "OrderFailed",
    "ScalingChanged", "TopologyChanged",
}  # fmt: skip
"""Types of events that the schema got after it was recorded."""

JOURNALS = sorted(RECORDED.glob("schema-*.db"))


@pytest.fixture(params=JOURNALS, ids=lambda path: path.stem)
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a copy of a recorded journal, which may be written to."""
    path = tmp_path / "journal.db"
    shutil.copy(request.param, path)
    shutil.copy(request.param.with_suffix(".json"), tmp_path / "facts.json")
    return path


def expected(journal: Path) -> object:
    return json.loads((journal.parent / "facts.json").read_text(encoding="utf-8"))


def in_json(state: State) -> object:
    return json.loads(json.dumps(facts(state)))


def test_recorded_journal_is_there_for_the_present_schema() -> None:
    assert JOURNALS


def test_recorded_journal_opens_from_its_snapshot_and_says_what_it_said(journal: Path) -> None:
    durable = DurableEngine(journal)
    try:
        assert 0 < durable.replayed_events < 100
        check(durable.engine.state)
        assert in_json(durable.engine.state) == expected(journal)
        encode_snapshot(durable.engine.snapshot())
    finally:
        durable.close()


def test_recorded_journal_replayed_from_its_first_event_says_the_same(journal: Path) -> None:
    opened, engine = Journal.open(journal), Engine()
    for _, batch in opened.batches():
        engine.replay(batch)
    opened.close()
    check(engine.state)
    assert in_json(engine.state) == expected(journal)


def test_recorded_journal_has_every_type_of_event(journal: Path) -> None:
    opened = Journal.open(journal)
    types = {type(event).__name__ for _, event in opened.events()}
    opened.close()
    journaled = {kind.__name__ for kind in Event.__subclasses__()} - {PlanReady.__name__}
    assert types == journaled - ADDED_SINCE
