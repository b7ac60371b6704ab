"""The PostgreSQL of a home (`postgres_server.py`), with a role and a database for Airflow, and one for the registry.

Airflow and the registry make their own tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deltaworks.settings import Settings
from deltaworks.stack.postgres_server import ADMIN, Server

DATABASES = ("airflow", "deltaworks")
"""Databases; each is owned by a role of the same name."""


def server(settings: Settings) -> Server:
    """The server of a home."""
    return Server(
        settings=settings,
        name="postgres",
        folder=settings.postgres,
        pgpass=settings.pgpass,
        port=settings.postgres_port,
        roles=DATABASES,
        database=DATABASES[0],
        statements=_statements,
    )


def url(settings: Settings, database: str) -> str:
    """The URL of a database for SQLAlchemy; the password stays in its file."""
    where = f"127.0.0.1:{settings.postgres_port}/{database}"
    return f"postgresql+psycopg://{database}@{where}?passfile={settings.pgpass}"


def _statements(words: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
    return {
        ADMIN: [
            statement
            for name in DATABASES
            for statement in (
                f"CREATE ROLE {name} LOGIN PASSWORD '{words[name]}'",
                f"CREATE DATABASE {name} OWNER {name}",
                f"REVOKE ALL ON DATABASE {name} FROM PUBLIC",
            )
        ]
    }
