"""The connectors in the registry: what is recorded of them, on a real PostgreSQL and in the tests' memory alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from deltaworks.control.connector_book import ConnectorBook, ConnectorRecord
from deltaworks.control.incident_book import IncidentBook
from deltaworks.control.incidents import Finding
from deltaworks.control.registry_schema import connectors
from tests.integration.control.conftest import Control
from tests.support.connector_book import BookInMemory

PROPERTIES = {"name": "lines", "connector.class": "org.example.Source", "db.password": "${env:PW}"}
Wait = Callable[[float], None]


@pytest.fixture(params=["registry", "memory"])
def world(request: pytest.FixtureRequest, control: Control) -> tuple[ConnectorBook, Wait]:
    """A book with a connector that was deployed, and a way to let time pass."""
    book: ConnectorBook
    if request.param == "memory":
        memory = BookInMemory()

        def wait(seconds: float) -> None:
            memory.now += seconds

        book = memory
    else:
        book = ConnectorBook.of(control.settings)

        def wait(seconds: float) -> None:
            times = [each for each in connectors.c if isinstance(each.type, sa.DateTime)]
            with control.registry.transaction() as connection:
                earlier = {each.name: each - sa.cast(f"{seconds} seconds", sa.Interval) for each in times}
                connection.execute(sa.update(connectors).values(**earlier))

    book.deployed("lines", PROPERTIES, cluster="c", by="me")
    return book, wait


def only(book: ConnectorBook) -> ConnectorRecord:
    (record,) = book.records().values()
    return record


def about(seconds: float | None) -> object:
    return pytest.approx(seconds, abs=5.0)


def see(book: ConnectorBook, *, failed: bool = False, drifts: bool = False, recovered: bool = False) -> None:
    book.seen("lines", "running", failed=failed, drifts=drifts, recovered=recovered)


def test_what_was_deployed_should_run_with_these_settings(world: tuple[ConnectorBook, Wait]) -> None:
    book, wait = world
    wait(100.0)

    record = only(book)

    assert (record.name, record.desired, record.properties, record.cluster) == ("lines", "running", PROPERTIES, "c")
    assert record.changed_ago_s == about(100.0)
    assert (record.restarts, record.gave_up) == (0, None)
    assert (record.restarted_ago_s, record.failed_ago_s, record.drifted_ago_s) == (None, None, None)


def test_since_when_something_is_wrong_is_kept_until_it_is_not(world: tuple[ConnectorBook, Wait]) -> None:
    book, wait = world
    see(book, failed=True, drifts=True)
    wait(60.0)
    see(book, failed=True, drifts=True)

    assert (only(book).failed_ago_s, only(book).drifted_ago_s) == (about(60.0), about(60.0))

    see(book)
    assert (only(book).failed_ago_s, only(book).drifted_ago_s) == (None, None)


def test_a_restart_is_claimed_once_and_counted_before_it_is_done(world: tuple[ConnectorBook, Wait]) -> None:
    book, wait = world
    see(book, failed=True)
    record = only(book)

    with ThreadPoolExecutor(4) as pool:
        claimed = list(pool.map(lambda _: book.claim(record, 1), range(4)))
    wait(30.0)

    assert sorted(claimed) == [False, False, False, True]
    assert (only(book).restarts, only(book).restarted_ago_s, only(book).failed_ago_s) == (1, about(30.0), None)


@pytest.mark.parametrize("how", ["recovered", "encouraged", "deployed"])
def test_what_was_tried_is_forgotten(world: tuple[ConnectorBook, Wait], how: str) -> None:
    book, _ = world
    see(book, failed=True)
    book.claim(only(book), 5)
    book.gave_up("lines", "5 restarts")
    assert (only(book).restarts, only(book).gave_up) == (5, "5 restarts")

    match how:
        case "recovered":
            see(book, recovered=True)
        case "encouraged":
            book.encouraged("lines")
        case _:
            book.deployed("lines", PROPERTIES, cluster="c", by="me")

    assert (only(book).restarts, only(book).gave_up) == (0, None)


def test_what_is_deleted_is_neither_restarted_nor_changed_by_who_looked_before(
    world: tuple[ConnectorBook, Wait],
) -> None:
    book, _ = world
    see(book, failed=True)
    before = only(book)

    assert book.desire("lines", "deleted", by="me")
    see(book)
    book.takes("lines", {})

    assert not book.claim(before, 1)
    assert (only(book).desired, only(book).properties) == ("deleted", PROPERTIES)
    assert not book.desire("nowhere", "deleted", by="me")


def test_a_pause_and_new_settings_are_noted(world: tuple[ConnectorBook, Wait]) -> None:
    book, _ = world
    book.seen("lines", "paused", failed=False, drifts=False, recovered=False)
    book.takes("lines", {**PROPERTIES, "topic": "t"})

    assert (only(book).desired, only(book).properties["topic"]) == ("paused", "t")
    book.seen("lines", None, failed=False, drifts=False, recovered=False)
    assert only(book).desired == "paused"


def test_the_memory_of_the_tests_has_every_method_of_the_book() -> None:
    public = {name for name in vars(ConnectorBook) if not name.startswith("_") and name != "of"}

    assert public == {name for name in vars(BookInMemory) if name in public}
    assert dataclasses.is_dataclass(BookInMemory)


def test_the_incidents_of_a_connector_are_not_those_of_a_stream_of_the_same_name(control: Control) -> None:
    book = IncidentBook.of(control.settings)
    book.settle(
        [
            Finding(pipeline="p", kind="lagging", what="it is late"),
            Finding(pipeline="p", kind="connector_failed", what="1 of 1 tasks have failed"),
        ],
        lambda incident: True,
    )

    assert book.open_counts() == {"p": 1}
    assert {each.kind for each in book.listed("p")} == {"lagging", "connector_failed"}


def test_a_persons_key_is_erased_from_why_a_connector_was_given_up(control: Control) -> None:
    book = ConnectorBook.of(control.settings)
    book.deployed("lines", PROPERTIES, cluster="c", by="me")
    book.gave_up("lines", "the row of ada@example.com")

    control.registry.erase_texts(lambda text: "ada@" in text, "(erased)")

    assert only(book).gave_up == "(erased)"
