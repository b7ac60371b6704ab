"""The registry's tables and statements, on a real PostgreSQL."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from deltaworks.control import registry
from deltaworks.control.batches import BatchRecord
from deltaworks.control.heartbeat import Heartbeat
from deltaworks.control.model import DeployOptions
from deltaworks.control.registry_schema import metadata
from deltaworks.errors import ControlUnavailableError, FencedError
from deltaworks.settings import Settings
from deltaworks.stack.ports import free_ports
from tests.integration.control.conftest import Control, project
from tests.integration.control.server import Server


def beat(generation: int, **fields: object) -> Heartbeat:
    known = {"pipeline": "p", "generation": generation, "query_id": "q", "state": "running", "pid": 1, "at": 1.0}
    return Heartbeat(**{**known, **fields})  # type: ignore[arg-type]


def record(batch: int) -> BatchRecord:
    return BatchRecord(batch, 1_000 + batch, {"orders": {"0": (batch, batch + 1)}})


def allocate(control: Control, **fields: object) -> int:
    known = {"above": 0, "request_id": None, "requested_by": "test", "log": "log", "healing": False}
    return control.registry.allocate("p", DeployOptions(), **{**known, **fields}).generation  # type: ignore[arg-type]


def test_the_migrations_make_exactly_the_tables_of_the_model(control: Control) -> None:
    with sa.create_engine(control.settings.registry_url, poolclass=sa.NullPool).connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        differences = compare_metadata(context, metadata)
        checks = {
            check["name"] for table in metadata.tables for check in sa.inspect(connection).get_check_constraints(table)
        }
        comments = {name: sa.inspect(connection).get_table_comment(name)["text"] for name in metadata.tables}

    assert differences == []
    assert checks == {
        str(constraint.name)
        for table in metadata.tables.values()
        for constraint in table.constraints
        if isinstance(constraint, sa.CheckConstraint)
    }
    assert comments == {name: table.comment for name, table in metadata.tables.items()}


def test_migrations_go_back_and_forth(control: Control) -> None:
    registry.downgrade(control.settings, "base")
    engine = sa.create_engine(control.settings.registry_url, poolclass=sa.NullPool)
    assert sa.inspect(engine).get_table_names() == ["alembic_version"]

    registry.migrate(control.settings)
    registry.migrate(control.settings)

    assert set(sa.inspect(engine).get_table_names()) == {"alembic_version", *metadata.tables}


def test_two_processes_migrate_at_once(server: Server, tmp_path: Path) -> None:
    settings = project(tmp_path / "project", server.new_database())
    script = "from deltaworks.control.registry import migrate; from deltaworks.settings import Settings\n"
    script += "migrate(Settings.from_environment())"

    both = [
        subprocess.Popen([sys.executable, "-W", "error", "-c", script], env=settings.environment()) for _ in range(2)
    ]

    assert [process.wait(60) for process in both] == [0, 0]
    assert registry.Registry.of(settings).pipelines() == []
    registry.close()


def test_a_registry_that_is_away_says_so_quickly_and_what_to_do(tmp_path: Path) -> None:
    nowhere = replace(Settings.from_environment({}, cwd=tmp_path), postgres_port=free_ports(1)[0])
    begun = time.monotonic()

    with pytest.raises(ControlUnavailableError) as raised:
        registry.Registry.of(nowhere).pipelines()

    assert "Connection refused" in str(raised.value)
    assert raised.value.hint == "deltaworks up"
    assert time.monotonic() - begun < 4
    assert not registry.supervised(nowhere, "p", 1, "me")


def test_a_database_without_tables_is_a_registry_that_is_away(server: Server, tmp_path: Path) -> None:
    settings = project(tmp_path / "project", server.new_database())

    with pytest.raises(ControlUnavailableError, match="no tables yet"):
        registry.Registry.of(settings).pipelines()


def test_generations_count_up_from_whatever_is_highest(control: Control) -> None:
    assert [allocate(control), allocate(control), allocate(control, above=7), allocate(control)] == [1, 2, 8, 9]
    assert [d.generation for d in control.registry.deployments("p")] == [9, 8, 2, 1]


def test_generations_that_are_allocated_at_once_differ(control: Control) -> None:
    with ThreadPoolExecutor(4) as pool:
        numbers = list(pool.map(lambda _: allocate(control), range(12)))

    assert sorted(numbers) == list(range(1, 13))


def test_a_request_is_one_deployment(control: Control) -> None:
    allocate(control, request_id="run-1")

    with pytest.raises(sa.exc.IntegrityError):
        allocate(control, request_id="run-1")

    assert control.registry.pipeline("p").generation == 1  # type: ignore[union-attr]


def test_an_older_generation_can_say_nothing_any_more(control: Control) -> None:
    book = control.registry
    book.beat(beat(1), host="h")
    book.append_batches("p", 1, "q", [record(0)])
    book.beat(beat(2, at=2.0), host="h")

    with pytest.raises(FencedError, match="generation 1 of pipeline 'p' was replaced by generation 2"):
        book.beat(beat(1, at=3.0), host="h")
    with pytest.raises(FencedError):
        book.append_batches("p", 1, "q", [record(1)])

    assert book.known("p", 0).beat == beat(2, at=2.0)
    assert book.batches("p", "q") == [record(0)]


def test_a_write_that_waits_for_the_takeover_is_fenced(control: Control) -> None:
    """The check and the write are one statement: the takeover that commits between them is seen."""
    book = control.registry
    book.beat(beat(1), host="h")
    engine = sa.create_engine(control.settings.registry_url, poolclass=sa.NullPool)
    with ThreadPoolExecutor(2) as pool, engine.begin() as takeover:
        takeover.execute(sa.text("UPDATE leases SET generation = 2"))
        late = [
            pool.submit(book.beat, beat(1, at=9.0), host="h"),
            pool.submit(book.append_batches, "p", 1, "q", [record(0)]),
        ]
        with engine.connect() as watcher:
            waiting = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")
            end = time.monotonic() + 10
            while watcher.execute(waiting).scalar_one() < 2 and time.monotonic() < end:
                watcher.rollback()
        takeover.commit()

        for call in late:
            with pytest.raises(FencedError):
                call.result(30)
    assert book.batches("p", "q") == []


def test_batches_that_come_twice_are_there_once(control: Control) -> None:
    book = control.registry
    book.beat(beat(1), host="h")
    book.append_batches("p", 1, "q", [record(0), record(1)])
    book.append_batches("p", 1, "q", [record(1), record(2)])

    assert book.batches("p", "q") == [record(0), record(1), record(2)]
    assert book.last_batch("p", "q") == 2
    assert book.last_batch("p", "another checkpoint") is None


def test_a_command_is_handed_out_once_and_to_its_generation_only(control: Control) -> None:
    book = control.registry
    book.drain("p", 2, "test")

    assert book.take_commands("p", 1) == []
    assert [(c.kind, c.requested_by) for c in book.take_commands("p", 2)] == [("drain", "test")]
    assert book.take_commands("p", 2) == []


def test_the_first_word_about_an_end_stays(control: Control) -> None:
    allocate(control)
    control.registry.ended("p", 1, "failed", exit_code=65, reason="a record failed")
    control.registry.ended("p", 1, "superseded", exit_code=None, reason=None)

    seen = control.registry.deployment("p", 1)
    assert seen is not None
    assert (seen.state, seen.exit_code, seen.reason) == ("failed", 65, "a record failed")
    assert seen.ended_at is not None and seen.ended_at.utcoffset() is not None


def test_one_of_many_gets_a_claim(control: Control) -> None:
    allocate(control)
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda n: control.registry.claim("p", 1, "restart", f"r{n}", restarts=0), range(24)))

    assert got.count(True) == 1
    assert control.registry.claim("p", 1, "attach", "r", restarts=0), "another action is another claim"


def test_a_claim_expires(control: Control) -> None:
    allocate(control)
    assert control.registry.claim("p", 1, "restart", "first", restarts=0)
    engine = sa.create_engine(control.settings.registry_url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE pipelines SET claimed_at = claimed_at - interval '181 seconds'"))

    assert control.registry.claim("p", 1, "restart", "second", restarts=0)
    assert not control.registry.claim("p", 1, "restart", "third", restarts=0)


def test_what_should_not_run_cannot_be_claimed(control: Control) -> None:
    allocate(control)
    control.registry.desire("p", "stopped")

    assert not control.registry.claim("p", 1, "restart", "r", restarts=0)


def test_only_one_deploys_at_a_time(control: Control) -> None:
    assert not control.registry.being_deployed("p")
    with control.registry.deploying("p"):
        assert control.registry.being_deployed("p")
        assert not control.registry.being_deployed("another")
    assert not control.registry.being_deployed("p")
