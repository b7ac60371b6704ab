"""A published replay and its rollback, as a table of a real MariaDB shows them, beside a stream that writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tests.hosts.beside import Beside
from tests.integration import test_jdbc_corrections as on_postgres
from tests.integration.test_jdbc_corrections import beside
from tests.integration.test_jdbc_sink_mariadb import ask, database

__all__ = ["beside", "database"]  # fixtures


@pytest.fixture
def login(database: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield database
    for (table,) in ask(database, "SHOW TABLES"):
        ask(database, f"DROP TABLE `{table}`")


@pytest.fixture
def rows(login: dict[str, Any]) -> Callable[[str], list[tuple[Any, ...]]]:
    """Asks as PostgreSQL would answer: MariaDB has times of UTC without saying so, and JSON as text."""

    def known(value: Any) -> Any:
        if isinstance(value, datetime):
            return value.replace(tzinfo=UTC)
        return msgspec.json.decode(value) if isinstance(value, str) and value.startswith("[") else value

    return lambda statement: [tuple(map(known, row)) for row in ask(login, statement)]


def test_rows_follow_a_publication_and_its_rollback(beside: Beside, rows: Any) -> None:
    on_postgres.test_rows_follow_a_publication_and_its_rollback(beside, rows)


@pytest.mark.parametrize("point", ["sinks.before_transaction", "sinks.after_transaction"])
def test_what_the_stream_writes_meanwhile_stays(beside: Beside, rows: Any, point: str) -> None:
    on_postgres.test_what_the_stream_writes_meanwhile_stays(beside, rows, point)


def test_a_task_and_a_correction_wait_for_each_other(login: dict[str, Any], rows: Any) -> None:
    on_postgres.test_a_task_and_a_correction_wait_for_each_other(login, rows)
