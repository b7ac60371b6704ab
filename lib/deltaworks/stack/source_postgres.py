"""A second PostgreSQL of a home (`postgres_server.py`), whose changes Debezium reads: a source of connectors.

It is what an application's database looks like to Kafka Connect: for tests, and to try a connector before it meets the
real one. The database `shop` belongs to the user `app`. The user `cdc` may replicate and read what `app` makes, and
nothing else: it can neither write nor publish, so the publication `shop` of all tables is there from the beginning.

The password of `cdc` is made before the server is, so that a worker of Kafka Connect that was started first has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deltaworks.settings import Settings
from deltaworks.stack import postgres_server
from deltaworks.stack.credentials import Credentials
from deltaworks.stack.postgres_server import ADMIN, Server

NAME = "source-postgres"
DATABASE = "shop"
"""The database, and its publication."""
APP, CDC = "app", "cdc"
"""The users: the application, and who reads its changes."""


def server(settings: Settings) -> Server:
    """The server of a home."""
    return Server(
        settings=settings,
        name=NAME,
        folder=settings.source_postgres,
        pgpass=settings.source_pgpass,
        port=settings.source_postgres_port,
        roles=(APP, CDC),
        database=DATABASE,
        statements=_statements,
    )


def credentials(settings: Settings) -> Credentials:
    """How the application gets in. The passwords are made once, and kept in the home; lost ones come with the server's
    next start."""
    created_now = not settings.source_pgpass.is_file()
    words = postgres_server.make_passwords(server(settings))
    return Credentials(
        url=f"postgresql://{APP}@127.0.0.1:{settings.source_postgres_port}/{DATABASE}",
        user=APP,
        password=words.get(APP, ""),
        file=settings.source_pgpass,
        created_now=created_now,
    )


def _statements(words: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
    return {
        ADMIN: [
            f"CREATE ROLE {APP} LOGIN PASSWORD '{words[APP]}'",
            f"CREATE ROLE {CDC} LOGIN REPLICATION PASSWORD '{words[CDC]}'",
            f"CREATE DATABASE {DATABASE} OWNER {APP}",
            f"REVOKE ALL ON DATABASE {DATABASE} FROM PUBLIC",
            f"GRANT CONNECT ON DATABASE {DATABASE} TO {CDC}",
            f"REVOKE ALL ON DATABASE {ADMIN} FROM PUBLIC",
        ],
        DATABASE: [
            "REVOKE ALL ON SCHEMA public FROM PUBLIC",
            f"GRANT ALL ON SCHEMA public TO {APP}",
            f"GRANT USAGE ON SCHEMA public TO {CDC}",
            f"ALTER DEFAULT PRIVILEGES FOR ROLE {APP} GRANT USAGE ON SCHEMAS TO {CDC}",
            f"ALTER DEFAULT PRIVILEGES FOR ROLE {APP} GRANT SELECT ON TABLES TO {CDC}",
            f"CREATE PUBLICATION {DATABASE} FOR ALL TABLES",
        ],
    }
