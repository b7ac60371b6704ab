"""A schema registry of this machine: AxonOps' server, which speaks Confluent's protocol, with its data in PostgreSQL.

It is what a company's registry looks like to a client: for tests, and to try a project with it before it meets the real
one. Configuration and passwords are in `<home>/schema-registry`; `access.toml` there says how clients reach it
(`Settings.schema_registry_access_in`). `python -m deltaworks.stack.schema_registry` makes role and database if they do
not exist, and becomes the server.

It listens on 127.0.0.1 and asks for a password; `/`, `/health` and `/metrics` answer everybody, and show no schema.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltaworks.errors import DeltaworksError, StackError
from deltaworks.files import replace_file
from deltaworks.settings import Settings
from deltaworks.stack import pages
from deltaworks.stack.components import Report, Software, read_components
from deltaworks.stack.credentials import Credentials
from deltaworks.stack.go import ensure_built

if TYPE_CHECKING:
    import psycopg

USER = "deltaworks"
"""Whom the registry knows, with all rights; others are made through its API."""
DATABASE = "schema_registry"
"""Owned by a role of the same name."""
_NAME, _PACKAGE = "axonops", "github.com/axonops/axonops-schema-registry/cmd/schema-registry"
_LOOPBACK = "127.0.0.1"
_CONNECTIONS = 10
_TIMEOUT_S = 5
_SECRET_BYTES = 30
_PASSWORDS = ("password", "database")
"""The files with the passwords of user and role."""
_ACCESS = """\
# Written by `deltaworks up schema-registry`: how clients reach the schema registry of this home.
[schema_registry]
url = "{url}"
username = "{user}"
password = {{ file = "secrets/password" }}
"""


def prepare(settings: Settings, software: Software, report: Report) -> None:
    """Makes the passwords if they do not exist, and writes configuration and access.

    Raises:
        ConfigurationError, StackError: the server cannot be built; see `ensure_built`.
    """
    _program(settings, software, report)
    login = credentials(settings)
    replace_file(_configuration_file(settings), json.dumps(configuration(settings), indent=2).encode(), mode=0o600)
    replace_file(login.file, _ACCESS.format(url=login.url, user=login.user).encode(), mode=0o600, durable=True)


def credentials(settings: Settings) -> Credentials:
    """How a client gets in. The passwords are made once, and kept in the home."""
    folder = settings.schema_registry / "secrets"
    for each in (settings.schema_registry, folder):
        each.mkdir(mode=0o700, exist_ok=True)
    created_now = not all((folder / name).is_file() for name in _PASSWORDS)
    if created_now:  # both, as the role's tells whether the user's is in the database
        for name in _PASSWORDS:
            replace_file(folder / name, f"{secrets.token_hex(_SECRET_BYTES)}\n".encode(), mode=0o600)
    return Credentials(
        url=f"http://{_LOOPBACK}:{settings.schema_registry_port}",
        user=USER,
        password=_password(settings, "password"),
        file=settings.schema_registry_access_in(settings.home),
        created_now=created_now,
    )


def configuration(settings: Settings) -> dict[str, Any]:
    """Of the server, without secrets."""
    return {
        "server": {"host": _LOOPBACK, "port": settings.schema_registry_port},
        "storage": {
            "type": "postgresql",
            "postgresql": {
                "host": _LOOPBACK,
                "port": settings.postgres_port,
                "database": DATABASE,
                "user": DATABASE,
                "ssl_mode": "disable",
                "max_open_conns": _CONNECTIONS,
            },
        },
        "security": {
            "auth": {"enabled": True, "methods": ["basic"], "bootstrap": {"enabled": True, "username": USER}},
        },
    }


def command(settings: Settings, software: Software) -> list[str]:
    """The command that starts the server."""
    return [str(_program(settings, software)), f"--config={_configuration_file(settings)}"]


def environment(settings: Settings) -> dict[str, str]:
    """All variables of its process."""
    return {
        "HOME": str(settings.schema_registry),
        "TMPDIR": str(settings.temporary),
        "SCHEMA_REGISTRY_PG_PASSWORD": _password(settings, "database"),
        "SCHEMA_REGISTRY_BOOTSTRAP_PASSWORD": _password(settings, "password"),
    }


def answers(settings: Settings) -> bool:
    """Whether the registry answers to the password of this home, from its database."""
    return pages.lets_in(credentials(settings), settings.schema_registry_port, "/config", timeout_s=_TIMEOUT_S)


def make_database(settings: Settings) -> None:
    """Makes role and database if they do not exist, also in a PostgreSQL that has been there for long.

    The password of the role is set last: whoever can log in finds the rest. If it is new, so is that of the user, whom
    the server makes only if there is none: all users are removed.

    Raises:
        StackError: PostgreSQL does not answer, or refuses it.
    """
    import psycopg
    from psycopg import sql

    name, password = sql.Identifier(DATABASE), _password(settings, "database")
    try:
        with _connected(settings, DATABASE, DATABASE, password=password):
            return
    except psycopg.OperationalError:
        pass  # no such role, database or password, or nobody answers, which comes out below
    try:
        with _connected(settings, "postgres", "postgres") as server:
            if not server.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [DATABASE]).fetchone():
                server.execute(sql.SQL("CREATE ROLE {} LOGIN").format(name))
            if not server.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
                server.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(name, name))
            server.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(name))
            with _connected(settings, DATABASE, "postgres") as own:
                if own.execute("SELECT to_regclass('public.users')").fetchone() != (None,):
                    own.execute("DELETE FROM public.users")
            server.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(name, sql.Literal(password)))
    except psycopg.Error as error:
        raise StackError(
            f"PostgreSQL gives the schema registry no database: {error}", hint="deltaworks logs postgres"
        ) from error


def main() -> None:
    """Becomes the server."""
    settings = Settings.from_environment()
    try:
        make_database(settings)
        words = command(settings, read_components(settings.infra).software[_NAME])
    except DeltaworksError as error:
        sys.exit(f"error: {error}")
    os.execve(words[0], words, environment(settings))


def _program(settings: Settings, software: Software, report: Report = lambda _: None) -> Path:
    return ensure_built(settings, _NAME, _PACKAGE, software.version, report)


def _configuration_file(settings: Settings) -> Path:
    return settings.schema_registry / "registry.yaml"


def _password(settings: Settings, name: str) -> str:
    return (settings.schema_registry / "secrets" / name).read_text().strip()


def _connected(settings: Settings, database: str, role: str, *, password: str | None = None) -> psycopg.Connection:
    """A connection of a role; without a password, of one whose password PostgreSQL's file has."""
    import psycopg

    return psycopg.connect(
        host=_LOOPBACK,
        port=settings.postgres_port,
        dbname=database,
        user=role,
        password=password,
        passfile=str(settings.pgpass),
        connect_timeout=_TIMEOUT_S,
        autocommit=True,
    )


if __name__ == "__main__":
    main()
