"""Journals that earlier builds recorded open, and say what they said then."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.journal.record import RECORDED, facts
from tests.journal.script import play
from tests.journal.shapes import journaled, said, shape

from headgate.engine import Engine
from headgate.engine.engine import Batch
from headgate.journal import Journal, encode_snapshot
from headgate.journal.journal import SCHEMA
from headgate.live.controller.durable import DurableEngine
from headgate.state import State, check
from headgate.testing.digest import digest

JOURNALS = sorted(RECORDED.glob("schema-*.db"))


@pytest.fixture(params=JOURNALS, ids=lambda path: path.stem)
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a copy of a recorded journal, which may be written to."""
    path = tmp_path / "journal.db"
    shutil.copy(request.param, path)
    shutil.copy(request.param.with_suffix(".json"), tmp_path / "facts.json")
    return path


def expected(journal: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((journal.parent / "facts.json").read_text(encoding="utf-8"))
    return found


def known(state: State, journal: Path) -> dict[str, Any]:
    """Return the facts of a state of the kinds that were recorded with a journal."""
    found = json.loads(json.dumps(facts(state)))
    return {kind: found[kind] for kind in expected(journal)}


def newest(tmp_path: Path) -> Path:
    """Return a copy of the journal recorded with the present schema."""
    return Path(shutil.copy(RECORDED / f"schema-{SCHEMA}.db", tmp_path / "newest.db"))


def test_recorded_journal_opens_from_its_snapshot_and_says_what_it_said(journal: Path) -> None:
    durable = DurableEngine(journal)
    try:
        assert 0 < durable.replayed_events < 100
        check(durable.engine.state)
        assert known(durable.engine.state, journal) == expected(journal)
        encode_snapshot(durable.engine.snapshot())
    finally:
        durable.close()


def test_recorded_journal_replayed_from_its_first_event_says_the_same(journal: Path) -> None:
    opened, engine = Journal.open(journal), Engine()
    for _, batch in opened.batches():
        engine.replay(batch)
    opened.close()
    check(engine.state)
    assert known(engine.state, journal) == expected(journal)


def test_journal_of_an_earlier_schema_becomes_one_of_the_present_schema(journal: Path) -> None:
    Journal.open(journal).close()
    with closing(sqlite3.connect(journal)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (SCHEMA,)


def test_newest_journal_says_all_that_events_can_say(tmp_path: Path) -> None:
    """Every field of every event has a value unlike its default there, and every word occurs."""
    opened = Journal.open(newest(tmp_path))
    events = [event for _, event in opened.events()]
    opened.close()
    assert {type(event).__name__ for event in events} == {*journaled()}
    assert {*shape()} - said(events) == set()


def test_what_events_can_say_changes_only_with_the_schema() -> None:
    path = RECORDED / f"schema-{SCHEMA}.events.json"
    assert shape() == json.loads(path.read_text(encoding="utf-8")), (
        "events say other things than when this schema was recorded: raise SCHEMA, then record "
        "(python -m tests.journal.record)"
    )


def test_script_runs_without_a_storm() -> None:
    """It depends on no policy: so the next schema can be recorded whatever policies do."""
    engine, batches = Engine(), list[Batch]()

    def record(batch: Batch) -> Batch:
        batches.append(batch)
        return batch

    play(engine, record)
    check(engine.state)
    again = Engine()
    for batch in batches:
        again.replay(batch)
    assert digest(again.state) == digest(engine.state)
    assert {*shape()} == said(event for batch in batches for event in batch)
