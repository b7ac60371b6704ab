"""A replication slot of a real PostgreSQL that is lost: told before and after, not restarted, and recovered from."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pytest

from deltaworks.connect import DebeziumPostgres, project, states
from deltaworks.connect.api import ConnectApi
from deltaworks.connect.slots import Slot, assess
from deltaworks.connectors import slots, sweep
from deltaworks.connectors.supervision import Supervised, supervise
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings
from deltaworks.stack import other_user, postgres_server, source_postgres
from deltaworks.stack.components import read_components
from deltaworks.stack.lifecycle import up
from tests.integration.test_sources import (
    BEFORE,
    EXPECTED,
    POSTGRES,
    TABLE,
    apply,
    as_table,
    changes,
    in_postgres,
    log_in,
    own_home,
)
from tests.support import polling
from tests.support.connector_book import BookInMemory

until = partial(polling.until, timeout_s=120)

SMALL = {"max_slot_wal_keep_size": "1MB", "wal_keep_size": "0", "max_wal_size": "1GB", "checkpoint_timeout": "1h"}
"""A slot is lost when it is two segments behind, and somebody asks for a checkpoint."""
FILLER = "INSERT INTO filler SELECT repeat(md5(i::text), 60) FROM generate_series(1, 20000) i"
"""40 MB of log."""


@contextmanager
def database(settings: Settings) -> Iterator[None]:
    """The home's own PostgreSQL, with other limits than the stack gives it."""
    server = source_postgres.server(settings)
    postgres_server.prepare(server, print)
    software = read_components(settings.infra).software["source-postgres"]
    small = msgspec.structs.replace(software, settings={**software.settings, **SMALL})
    command = other_user.as_user(postgres_server.server_user(), postgres_server.command(server, small))
    process = subprocess.Popen(
        command, env=postgres_server.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: postgres_server.accepts_login(server))
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def as_admin(settings: Settings, statement: str) -> None:
    with closing(log_in(settings, "postgres", "postgres")) as connection:
        connection.execute(statement.encode())


def as_cdc(settings: Settings, statement: str) -> list[tuple[Any, ...]]:
    with closing(log_in(settings, "cdc")) as connection:
        return connection.execute(statement.encode()).fetchall()


def lose_slot(settings: Settings) -> None:
    in_postgres(settings, FILLER)
    as_admin(settings, "CHECKPOINT")


def test_a_slot_is_told_before_it_is_lost_and_afterwards() -> None:
    with own_home("debezium-postgres") as settings, database(settings):
        connector = DebeziumPostgres(
            name="shop_cdc",
            hostname="127.0.0.1",
            port=settings.source_postgres_port,
            user="cdc",
            password={"env": "DELTAWORKS_CONNECT_SOURCE_POSTGRES_PASSWORD"},
            dbname="shop",
            topic_prefix="shop",
        )
        in_postgres(settings, "CREATE TABLE filler (line text)")

        assert slots.look(settings, connector) == Slot(name="shop_cdc", exists=False)
        as_cdc(settings, "SELECT pg_create_logical_replication_slot('shop_cdc', 'pgoutput')")
        new = slots.look(settings, connector)
        assert new is not None and new.behind_bytes is not None
        assert replace(new, behind_bytes=None) == Slot(name="shop_cdc", wal_status="reserved")

        in_postgres(settings, FILLER)
        behind = slots.look(settings, connector)
        assert behind is not None and behind.behind_bytes is not None
        assert replace(behind, behind_bytes=None) == Slot(name="shop_cdc", wal_status="unreserved")
        assert behind.behind_bytes > new.behind_bytes + 1_000_000, "nobody has read what fills its log"
        as_admin(settings, "CHECKPOINT")
        lost = slots.look(settings, connector)
        assert lost is not None and (lost.wal_status, lost.exists) == ("lost", True)
        assert lost.why in (None, "wal_removed"), "PostgreSQL 17 and newer say why"

        told = [assess(each, has_offsets=True) for each in (behind, lost)]
        assert [each.danger for each in told if each is not None] == ["endangered", "lost"]
    assert slots.look(settings, connector) is None, "without its passwords, nobody can ask"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_after_a_lost_slot_tables_equal_the_database_again() -> None:
    """Stopped for too long; then told, not restarted, a new snapshot, and what was deleted meanwhile."""
    with own_home("debezium-postgres") as settings:
        up(settings, only=["connect"], tethered=True)
        with database(settings):
            told = Settings.from_environment(settings.environment(), cwd=settings.project)
            with ConnectApi.of(told) as api:
                _loses_and_recovers(settings, told, api)


def _loses_and_recovers(settings: Settings, told: Settings, api: ConnectApi) -> None:
    in_postgres(settings, TABLE, *BEFORE, "CREATE TABLE filler (line text)")
    apply(settings, "shop_cdc", POSTGRES.format(port=settings.source_postgres_port))
    until(lambda: changes(settings, "cdc.orders") == EXPECTED[:2])
    loaded, book = project.load_each(told), BookInMemory()

    def look() -> Supervised:
        return supervise(api, loaded, book, look=partial(slots.look, told))

    def told_of() -> list[str]:
        return [each.kind for each in look().findings if each.opens]

    assert told_of() == []
    _stopped(api)
    in_postgres(settings, "INSERT INTO orders VALUES (3, 'rye', NULL)", "DELETE FROM orders WHERE id = 2")
    in_postgres(settings, "UPDATE orders SET amount = 10.25 WHERE id = 1", FILLER)
    assert told_of() == ["slot_endangered"]
    as_admin(settings, "CHECKPOINT")
    assert told_of() == ["slot_lost"], "also while it rests"

    api.resume("shop_cdc")
    until(lambda: _status(api).connector.state == "RUNNING")
    seen = look()
    (decision,) = seen.decisions
    assert decision.action == "give_up" and "it needs a new snapshot" in decision.reason
    assert [each.kind for each in seen.findings if each.opens] == ["slot_lost"]
    print("LOST", api.status("shop_cdc"))
    assert changes(settings, "cdc.orders") == EXPECTED[:2], "Debezium waits, and says nothing"

    _recovers(settings, told, api, gone=[2])
    assert told_of() == []
    in_postgres(settings, "INSERT INTO orders VALUES (5, 'hop', 2)")
    until(lambda: 5 in as_table(settings, "cdc.orders"))
    _equals(settings)

    _stopped(api)
    as_cdc(settings, "SELECT pg_drop_replication_slot('shop_cdc')")
    in_postgres(settings, "UPDATE orders SET id = 50 WHERE id = 5")
    assert told_of() == ["slot_lost"], "it is missing, and the connector has offsets"
    api.resume("shop_cdc")
    until(lambda: _has_failed(api))
    (decision,) = look().decisions
    print("GONE", decision, api.status("shop_cdc"))
    assert states.lost(_status(api)) is not None and decision.action == "give_up"
    assert book.rows["shop_cdc"].restarts == 0
    _recovers(settings, told, api, gone=[5])
    _equals(settings)


def _recovers(settings: Settings, told: Settings, api: ConnectApi, *, gone: list[int]) -> None:
    """As docs/how-to/change-data-capture.md says it."""
    _stopped(api)
    if as_cdc(settings, "SELECT slot_name FROM pg_replication_slots"):
        as_cdc(settings, "SELECT pg_drop_replication_slot('shop_cdc')")
    before = len(changes(settings, "cdc.orders"))
    assert "cdc.orders" in sweep.begin_again(told, api, "shop_cdc")
    with pytest.raises(ConfigurationError, match="snapshot of connector 'shop_cdc' is not complete"):
        sweep.plan(told, api, "shop_cdc", ["cdc.orders"])
    api.resume("shop_cdc")
    rows = _rows(settings)
    until(lambda: len(changes(settings, "cdc.orders")) >= before + len(rows))
    until(lambda: any(each.offset and not sweep._is_open(each.offset) for each in api.offsets("shop_cdc")))
    print("OFFSETS", api.offsets("shop_cdc"))
    assert as_table(settings, "cdc.orders").keys() == {*rows, *gone}, "nothing has said that they are gone"

    _stopped(api)
    planned = sweep.plan(told, api, "shop_cdc", ["cdc.orders"])
    assert (planned.count, planned.topics[0].rows) == (len(gone), len(rows))
    with pytest.raises(ConfigurationError, match="may have rows of several tables"):  # plain JSON rows
        sweep.send(told, api, planned)
    assert sweep.send(told, api, planned, force=True) == len(gone)
    assert sweep.plan(told, api, "shop_cdc", ["cdc.orders"]).count == 0
    _equals(settings)
    api.resume("shop_cdc")
    until(lambda: not states.look(api, ["shop_cdc"]).has_failures and _status(api).tasks)


def _stopped(api: ConnectApi) -> None:
    api.stop("shop_cdc")
    until(lambda: _status(api).connector.state == states.STOPPED and not _status(api).tasks)


def _status(api: ConnectApi) -> Any:
    (status,) = states.look(api, ["shop_cdc"]).connectors
    return status


def _has_failed(api: ConnectApi) -> bool:
    return states.has_failed(_status(api))


def _rows(settings: Settings) -> dict[int, tuple[Any, ...]]:
    with closing(log_in(settings, "app")) as connection:
        rows = connection.execute("SELECT id, item, amount, NULL FROM orders").fetchall()
    return {row[0]: row for row in rows}


def _equals(settings: Settings) -> None:
    assert as_table(settings, "cdc.orders") == _rows(settings)
