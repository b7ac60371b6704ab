"""Incidents in the registry: one at a time of a kind, each told once, on a real PostgreSQL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from deltaworks.control import incident_book
from deltaworks.control.heartbeat import Heartbeat
from deltaworks.control.incident_book import IncidentBook, Told
from deltaworks.control.incidents import Count, Finding, Incident
from deltaworks.control.watch import watch
from tests.integration.control.conftest import Control
from tests.integration.control.test_actions import deploy, stop
from tests.integration.control.test_reconcile import kill

LAGGING = Finding(pipeline="p", kind="lagging", what="it is late", cause="many records")
OPEN, OVER = Told("open", "0 Mail"), Told("over", "0 Mail")


@pytest.fixture
def book(control: Control) -> IncidentBook:
    return IncidentBook.of(control.settings)


def everything(incident: Incident) -> bool:
    return True


def sql(control: Control, text: str) -> None:
    engine = sa.create_engine(control.settings.registry_url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text(text))


def beat(**counts: Any) -> Heartbeat:
    known: dict[str, Any] = {"pipeline": "p", "generation": 1, "query_id": "q", "state": "running", "pid": 1, "at": 1.0}
    return Heartbeat(**{**known, "up_s": 60.0, **counts})


def test_an_incident_is_opened_once_and_ends_when_nobody_finds_it(book: IncidentBook) -> None:
    for _ in range(3):
        book.settle([LAGGING], everything)
    [incident] = book.listed("p")
    assert (incident.kind, incident.what, incident.cause) == ("lagging", "it is late", "many records")
    assert book.open_counts() == {"p": 1}

    book.settle([], everything)

    assert (book.listed("p"), book.open_counts()) == ([], {})
    [ended] = book.listed("p", ended=True)
    assert (ended.id, ended.how) == (incident.id, "it has caught up")
    assert ended.ended_at is not None


def test_many_at_once_open_one(book: IncidentBook) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: book.settle([LAGGING], everything), range(12)))

    assert len(book.listed(ended=True)) == 1


def test_what_only_keeps_an_incident_opens_none(book: IncidentBook) -> None:
    keeps = Finding(pipeline="p", kind="lagging", what="less late", opens=False)

    book.settle([keeps], everything)
    assert book.listed() == []
    book.settle([LAGGING], everything)
    book.settle([keeps], everything)
    assert [each.what for each in book.listed()] == ["it is late"]


def test_what_nobody_has_looked_for_goes_on(book: IncidentBook) -> None:
    book.settle([LAGGING], everything)

    book.settle([], lambda incident: incident.kind == "failed")

    assert len(book.listed()) == 1


def test_a_notice_is_claimed_by_one_and_told_once(book: IncidentBook, control: Control) -> None:
    book.settle([LAGGING], everything)
    [(incident, told)] = book.to_tell()
    assert told == frozenset()

    with ThreadPoolExecutor(4) as pool:
        claims = list(pool.map(lambda number: book.claim(incident.id, OPEN, f"run {number}"), range(12)))
    assert sorted(claims) == [False] * 11 + [True]

    book.told(incident.id, OPEN)
    sql(control, "UPDATE notices SET claimed_at = now() - INTERVAL '1 day'")
    assert not book.claim(incident.id, OPEN, "later")
    assert [of for _, of in book.to_tell()] == [frozenset({OPEN})]
    assert book.claim(incident.id, OVER, "another notice")


def test_a_claim_of_somebody_who_was_killed_ends(book: IncidentBook, control: Control) -> None:
    book.settle([LAGGING], everything)
    [(incident, _)] = book.to_tell()
    assert book.claim(incident.id, OPEN, "killed")
    assert not book.claim(incident.id, OPEN, "killed")

    sql(
        control, f"UPDATE notices SET claimed_at = now() - INTERVAL '{incident_book.CLAIM.total_seconds() + 1} seconds'"
    )

    assert book.claim(incident.id, OPEN, "the next one")
    book.release(incident.id, OPEN, "killed")
    assert not book.claim(incident.id, OPEN, "a third one")
    book.release(incident.id, OPEN, "the next one")
    assert book.claim(incident.id, OPEN, "a third one")


def test_what_ended_long_ago_is_not_told_and_after_a_season_is_gone(book: IncidentBook, control: Control) -> None:
    book.settle([LAGGING], everything)
    [(incident, _)] = book.to_tell()
    book.claim(incident.id, OPEN, "me")
    book.settle([], everything)
    assert len(book.to_tell()) == 1

    sql(control, "UPDATE incidents SET ended_at = now() - INTERVAL '25 hours'")
    assert book.to_tell() == []
    sql(control, "UPDATE incidents SET ended_at = now() - INTERVAL '91 days'")
    book.settle([], everything)
    assert book.listed(ended=True) == []


def test_dead_letters_of_sinks_are_counted_beside_a_pipeline_of_the_same_name(
    book: IncidentBook, control: Control
) -> None:
    def increased(total: int, *, topic: int = 7, deployed_s: float = 60.0) -> int:
        count = Count(generation=topic, dead_letters=total)
        return book.dead_letters_of_sinks({"p": count}, {"p": deployed_s})["p"]

    book.trends([beat(state_entries=10, dead_letters=2)])
    assert increased(5) == 5, "it was deployed a minute ago"
    assert increased(5, deployed_s=9_000.0) == 0, "those that it had when somebody first looked"
    sql(control, "UPDATE samples SET at = at - INTERVAL '30 minutes'")
    assert increased(8, deployed_s=9_000.0) == 3
    sql(control, "UPDATE samples SET at = at - INTERVAL '90 minutes'")
    assert increased(8) == 0
    assert increased(2, topic=8) == 2, "a topic that was made anew"
    assert book.trends([beat(state_entries=10, dead_letters=2)])["p"].dead_letters == 0


def test_incidents_of_a_connector_are_not_those_of_a_pipeline(book: IncidentBook) -> None:
    book.settle([Finding(pipeline="p", kind="sink_dead_letters", what="2 records"), LAGGING], everything)

    assert (book.open_counts(), book.open_counts_of_connectors()) == ({"p": 1}, {"p": 1})


def test_trends_are_of_an_hour_and_of_a_day(book: IncidentBook, control: Control) -> None:
    first = book.trends([beat(state_entries=10, dead_letters=2)])["p"]
    assert (first.state_before, first.dead_letters) == (None, 2)
    sql(control, "UPDATE samples SET at = at - INTERVAL '2 hours'")

    assert book.trends([beat(state_entries=20, dead_letters=2)])["p"].dead_letters == 0
    assert book.trends([beat(generation=2, state_entries=20, dead_letters=5)])["p"].dead_letters == 5
    sql(control, "UPDATE samples SET at = at - INTERVAL '25 hours'")
    later = book.trends([beat(generation=2, state_entries=90, dead_letters=5)])["p"]
    assert (later.state_before, later.dead_letters) == (20, 0)


def test_texts_about_a_person_are_replaced(book: IncidentBook, control: Control) -> None:
    book.settle([LAGGING], everything)

    control.registry.erase_texts(lambda text: "many" in text, "(erased)")

    assert [each.cause for each in book.listed()] == ["(erased)"]


def test_a_stream_that_was_killed_is_an_incident_until_it_is_stopped(control: Control, book: IncidentBook) -> None:
    deployment = deploy(control)
    watch(control.settings, launchers=control.launchers)
    assert book.listed("p") == []

    kill(control, deployment.generation)
    for _ in range(2):
        watch(control.settings, launchers=control.launchers)
    assert [each.kind for each in book.listed("p")] == ["failed"]

    stop(control)
    watch(control.settings, launchers=control.launchers)
    [ended] = book.listed("p", ended=True)
    assert ended.how == "the stream was stopped"
