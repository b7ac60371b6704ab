"""What is done about connectors that do not run, are gone, or are not as their files say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from deltaworks.connect import DebeziumPostgres
from deltaworks.connect.api import ConnectApi, Patience
from deltaworks.connect.connector import Connector
from deltaworks.connect.project import Loaded
from deltaworks.connect.slots import Slot
from deltaworks.connectors.supervision import POLICY, Decision, supervise
from deltaworks.control.incidents import DRIFTS_S, OF_CONNECTORS
from deltaworks.errors import ConnectUnavailableError
from tests.support.connector_book import BookInMemory
from tests.support.fake_connect import FILE_SOURCE, FakeConnect, fake_connect

LINES = Connector(name="lines", class_=FILE_SOURCE, config={"file": "/lines.txt", "topic": "lines"})
OTHER = Connector(name="other", class_=FILE_SOURCE, config={"file": "/other.txt", "topic": "other"})
REPAIRED = replace(LINES, on_drift="repair")
TRACE = "org.apache.kafka.connect.errors.ConnectException: the file is gone, password=s3cret\n\tat org.example.Task\n"


@dataclass
class World:
    """A cluster, its registry and the files of a project."""

    fake: FakeConnect
    book: BookInMemory
    api: ConnectApi
    project: Loaded

    def look(self, **options: Any) -> list[Decision]:
        seen = supervise(self.api, self.project, self.book, **options)
        self.found = list(seen.findings)
        return list(seen.decisions)

    def looks(self, *connectors: Connector) -> None:
        """The project has these from now on."""
        self.project = Loaded({each.name: each for each in connectors})

    def after(self, seconds: float) -> World:
        self.book.now += seconds
        return self

    def fail(self) -> None:
        self.fake.fail("lines", 0, TRACE)

    @property
    def restarts(self) -> list[str]:
        return [path for way, path in self.fake.changes if way == "POST" and "/restart" in path]

    @property
    def open(self) -> list[tuple[str, str]]:
        """The incidents that begin now."""
        return [(each.pipeline, each.kind) for each in self.found if each.opens]

    @property
    def kept(self) -> set[str]:
        return {each.kind for each in self.found}


@pytest.fixture
def world() -> Iterator[World]:
    with fake_connect() as fake, ConnectApi(fake.url, patience=Patience(rebalance_s=0.0)) as api:
        fake.add("lines", LINES.properties)
        made = World(fake, BookInMemory(), api, Loaded({"lines": LINES}))
        made.look()
        yield made


def only(decisions: list[Decision]) -> Decision:
    (one,) = decisions
    return one


def test_a_connector_with_a_file_is_adopted_and_one_without_is_not(world: World) -> None:
    world.fake.add("theirs", {"connector.class": FILE_SOURCE})
    world.look()

    assert list(world.book.rows) == ["lines"]
    assert (world.book.rows["lines"].desired, world.book.rows["lines"].properties) == ("running", LINES.properties)


def test_a_connector_that_runs_is_left_alone(world: World) -> None:
    assert only(world.look()) == Decision(name="lines", action="nothing", reason="it runs")
    assert (world.fake.changes, world.found) == ([], [])


def test_a_failed_task_is_restarted_at_once_and_told_without_secrets(world: World) -> None:
    world.fail()

    decision = only(world.look())

    assert decision.action == "restart"
    assert "1 of 1 tasks have failed" in decision.reason and "the file is gone" in decision.reason
    assert world.restarts == ["/connectors/lines/restart?includeTasks=true&onlyFailed=true"]
    assert world.open == [("lines", "connector_failed")]
    assert "s3cret" not in f"{decision}{world.found}"


def test_restarts_have_growing_pauses_and_an_end(world: World) -> None:
    pauses = []
    for _ in range(POLICY.limit):
        world.fail()
        waited = 0.0
        while only(world.look()).action == "wait":
            world.after(30.0)
            waited += 30.0
        pauses.append(waited)
        world.after(1.0)
        assert only(world.look()).reason == "it runs"  # it begins, and soon fails again
    assert pauses == [0.0, 60.0, 120.0, 240.0, 480.0]
    assert len(world.restarts) == POLICY.limit

    world.fail()
    given_up = only(world.look())
    world.after(100_000.0)

    assert given_up.action == "give_up"
    assert "5 restarts in a row have not helped: 1 of 1 tasks have failed" in given_up.reason
    assert only(world.look()) == given_up
    assert world.open == [("lines", "connector_given_up")]
    assert len(world.restarts) == POLICY.limit


def test_who_is_restarted_by_hand_after_it_was_given_up_begins_anew(world: World) -> None:
    world.book.rows["lines"].restarts = POLICY.limit
    world.fail()
    assert only(world.look()).action == "give_up"

    world.api.restart("lines", only_failed=True)

    assert only(world.look()).reason == "it runs"
    assert (world.book.rows["lines"].gave_up, world.book.rows["lines"].restarts) == (None, 0)
    assert world.found == []


def test_what_has_run_long_enough_has_recovered_and_its_next_failure_is_a_first_one(world: World) -> None:
    world.fail()
    world.look()
    world.after(POLICY.healthy_s - 1).look()
    assert (world.book.rows["lines"].restarts, world.kept, world.open) == (1, {"connector_failed"}, [])

    world.after(2.0).look()
    assert (world.book.rows["lines"].restarts, world.found) == (0, [])

    world.fail()
    assert only(world.look()).action == "restart"


def test_a_failed_connector_is_restarted_like_a_task(world: World) -> None:
    world.fake.connectors["lines"].state = "FAILED"
    world.fake.connectors["lines"].trace = "java.lang.IllegalStateException: no\n\tat x"

    assert "the connector itself has failed: java.lang.IllegalStateException: no" in only(world.look()).reason


@pytest.mark.parametrize("state", ["PAUSED", "STOPPED"])
def test_what_somebody_has_paused_or_stopped_rests_also_with_failed_tasks(world: World, state: str) -> None:
    world.fail()
    world.fake.connectors["lines"].state = state

    assert only(world.look()).reason == f"it is {state.lower()}"
    assert world.book.rows["lines"].desired == state.lower()
    assert (world.fake.changes, world.open) == ([], [])

    del world.fake.connectors["lines"]
    assert only(world.look()).action == "nothing"
    assert world.fake.changes == []


def test_a_connector_that_is_gone_is_deployed_again_as_it_was_and_not_for_ever(world: World) -> None:
    world.looks(replace(LINES, config={**LINES.config, "topic": "not-deployed"}))
    for _ in range(POLICY.limit):
        del world.fake.connectors["lines"]
        while only(world.look()).action == "wait":
            world.after(30.0)
        assert world.fake.connectors["lines"].config == LINES.properties
    del world.fake.connectors["lines"]

    assert only(world.look()).action == "give_up"
    assert "lines" not in world.fake.connectors


def test_one_that_has_to_write_exactly_once_is_not_deployed_again_to_a_worker_alone(world: World) -> None:
    world.looks(replace(LINES, config={**LINES.config, "exactly.once.support": "REQUIRED"}))
    world.fake.connectors["lines"].config["exactly.once.support"] = "REQUIRED"
    world.look()
    world.fake.connectors.clear()
    world.api.standalone = True

    decision = only(world.look())

    assert decision.action == "wait" and "a worker in standalone mode does not" in decision.reason
    assert world.open == [("lines", "connector_failed")]
    assert world.fake.connectors == {} and world.book.rows["lines"].restarts == 0
    world.api.standalone = False
    assert only(world.look()).action == "deploy"


def test_what_was_deleted_here_is_not_deployed_again(world: World) -> None:
    world.book.desire("lines", "deleted", by="me")
    assert world.look() == []  # the connector is still there, and about to go
    del world.fake.connectors["lines"]

    assert world.after(1_000.0).look() == []
    assert world.fake.changes == []


def test_what_was_deleted_and_made_again_by_somebody_is_watched_again(world: World) -> None:
    world.book.desire("lines", "deleted", by="me")

    assert only(world.after(1_000.0).look()).reason == "it runs"
    assert world.book.rows["lines"].desired == "running"


def test_connectors_of_another_cluster_are_not_deployed_to_this_one(world: World) -> None:
    world.fake.cluster, world.fake.connectors = "another", {}

    assert "was deployed to the cluster" in only(world.look()).reason
    assert (world.fake.changes, world.open) == ([], [])


def test_a_drift_is_told_after_a_while_and_changes_nothing(world: World) -> None:
    world.fake.connectors["lines"].config["topic"] = "by-hand"

    assert only(world.look()).action == "nothing"
    assert (world.open, world.kept) == ([], {"connector_drifted"})
    world.after(DRIFTS_S).look()

    assert world.open == [("lines", "connector_drifted")]
    (finding,) = world.found
    assert finding.what == "it is not as its file says: topic"
    assert world.fake.changes == []

    world.fake.connectors["lines"].config["topic"] = "lines"
    world.look()
    assert (world.found, world.book.rows["lines"].drifted) == ([], None)


def test_a_drift_is_repaired_if_the_file_says_so(world: World) -> None:
    world.looks(REPAIRED)
    world.fake.connectors["lines"].config["topic"] = "by-hand"

    assert only(world.look()) == Decision(name="lines", action="repair", reason="it was not as its file says")
    assert world.fake.connectors["lines"].config == LINES.properties
    assert world.found == []


@pytest.mark.parametrize("state", ["UNASSIGNED", "RESTARTING"])
def test_a_repair_is_told_also_while_workers_share_out_their_tasks(world: World, state: str) -> None:
    world.looks(REPAIRED)
    world.fake.connectors["lines"].config["topic"] = "by-hand"
    world.fake.connectors["lines"].state = state

    assert only(world.look()).action == "repair"
    assert world.fake.connectors["lines"].config == LINES.properties
    assert (world.open, world.kept) == ([], set(OF_CONNECTORS))


def test_a_file_that_does_not_fit_is_not_applied_and_told_at_once(world: World) -> None:
    world.looks(replace(REPAIRED, config={**LINES.config, "batch.sice": 7}))

    world.look()

    assert world.open == [("lines", "connector_drifted")]
    assert "did you mean 'batch.size'?" in str(world.found[0].cause)
    assert world.fake.changes == []


def test_a_file_that_cannot_be_used_keeps_no_connector_from_its_restart(world: World) -> None:
    world.project = Loaded({}, {"lines": "jobs/connectors/lines.py fails"})
    world.fail()

    assert only(world.look()).action == "restart"
    assert world.open == [("lines", "connector_failed")]


def test_a_file_that_is_gone_leaves_its_connector_supervised(world: World) -> None:
    world.looks()
    world.fail()

    assert only(world.look()).action == "restart"


def test_a_request_that_is_refused_keeps_no_other_connector_from_its_restart(world: World) -> None:
    world.looks(LINES, OTHER)
    world.fake.add("other", OTHER.properties)
    world.look()
    world.fail()
    world.fake.fail("other", 0, TRACE)
    answer = world.fake.answer
    world.fake.answer = lambda method, target, body: (  # type: ignore[method-assign]
        (400, {"error_code": 400, "message": "no"}) if "/lines/restart" in target else answer(method, target, body)
    )

    decisions = {each.name: each for each in world.look()}

    assert decisions["other"].action == "restart"
    assert decisions["lines"].action == "wait" and ": no" in decisions["lines"].reason


def test_while_workers_share_out_their_tasks_nothing_is_done_and_nothing_is_over(world: World) -> None:
    world.fake.connectors["lines"].state = "UNASSIGNED"

    assert only(world.look()).action == "wait"
    assert (world.open, world.kept) == ([], set(OF_CONNECTORS))


def test_two_at_once_restart_it_once(world: World) -> None:
    world.fail()
    claim = world.book.claim

    def late(record: Any, restarts: int) -> bool:
        assert claim(record, restarts)  # another caller was first
        return claim(record, restarts)

    world.book.claim = late  # type: ignore[method-assign]

    assert "somebody else restarts it" in only(world.look()).reason
    assert world.restarts == []


def test_a_worker_that_does_not_answer_is_an_error_and_nothing_is_recorded(world: World) -> None:
    before = dict(world.book.rows)
    world.fake.next = [(500, "down")]

    with pytest.raises(ConnectUnavailableError):
        world.look()

    assert world.book.rows == before


LOST = """\
io.debezium.DebeziumException: The connector is trying to read change stream starting at PostgresOffsetContext [], \
but this is no longer available on the server. Reconfigure the connector to use a snapshot mode when needed.
\tat org.example.Task
"""
CDC = DebeziumPostgres(
    name="cdc", hostname="db", user="cdc", password={"env": "PW"}, dbname="shop", topic_prefix="shop"
)


@pytest.fixture
def captures(world: World) -> World:
    """A world in which a connector reads a database."""
    world.fake.connectors, world.book.rows = {}, {}
    world.looks(CDC)
    world.fake.add("cdc", CDC.properties)
    world.look()
    return world


def test_a_task_whose_log_is_gone_is_not_restarted_even_once(captures: World) -> None:
    captures.fake.fail("cdc", 0, LOST)

    decision = only(captures.look())

    assert decision.action == "give_up"
    assert "no restart helps, it needs a new snapshot" in decision.reason
    assert captures.restarts == []
    assert captures.open == [("cdc", "slot_lost")]
    assert captures.book.rows["cdc"].gave_up == decision.reason
    assert only(captures.after(10_000.0).look()) == decision
    assert (captures.restarts, captures.open) == ([], [("cdc", "slot_lost")])


def test_after_a_new_snapshot_it_is_watched_as_before(captures: World) -> None:
    captures.fake.fail("cdc", 0, LOST)
    captures.look()

    captures.api.restart("cdc", only_failed=True)
    assert only(captures.look()).reason == "it runs"
    assert (captures.found, captures.book.rows["cdc"].gave_up) == ([], None)

    captures.fake.fail("cdc", 0, TRACE)
    assert only(captures.look()).action == "restart"


def test_a_failure_that_does_not_say_it_is_terminal_if_the_database_does(captures: World) -> None:
    captures.fake.fail("cdc", 0, "ConnectException: Unable to obtain valid replication slot")
    slot = Slot(name="cdc", wal_status="lost", why="wal_removed")

    assert only(captures.look(look=lambda _: slot)).action == "give_up"
    assert captures.restarts == []

    captures.book.rows["cdc"].gave_up = None
    slot = Slot(name="cdc", wal_status="reserved")
    assert only(captures.look(look=lambda _: slot)).action == "restart"


def test_a_slot_is_told_while_its_connector_runs_and_while_it_rests(captures: World) -> None:
    slot = Slot(name="cdc", wal_status="unreserved")
    assert only(captures.look(look=lambda _: slot)).reason == "it runs"
    assert captures.open == [("cdc", "slot_endangered")]

    captures.fake.connectors["cdc"].state = "STOPPED"
    assert only(captures.look(look=lambda _: slot)).reason == "it is stopped"
    assert captures.open == [("cdc", "slot_endangered")]

    slot = Slot(name="cdc", wal_status="lost")
    captures.look(look=lambda _: slot)
    assert captures.open == [("cdc", "slot_lost")]
    assert captures.fake.changes == []

    captures.fake.connectors["cdc"].state = "RUNNING"  # its task waits for the slot, and has not failed yet
    assert only(captures.look(look=lambda _: slot)).action == "give_up"
    slot = Slot(name="cdc", wal_status="reserved")
    assert only(captures.look(look=lambda _: slot)).reason == "it runs"
    assert (captures.found, captures.book.rows["cdc"].gave_up) == ([], None)


def test_a_database_that_does_not_answer_ends_no_incident(captures: World) -> None:
    captures.look(look=lambda _: Slot(name="cdc", known=False))

    assert (captures.open, captures.kept) == ([], {"slot_endangered", "slot_lost"})
