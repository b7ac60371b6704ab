"""Asks the databases of connectors for their replication slots, before and after it is too late.

A connector has its password as a reference that its workers follow. Here, too, one to a variable or a file is followed,
if it leads to something on this machine; the databases of the home are known; and where none is found, libpq looks into
`~/.pgpass`. A database that cannot be asked so is not asked: then only the traces of failed tasks say what is wrong.

References are followed for connectors of the project only, as their files say: what somebody has written into the
cluster might send our secrets elsewhere.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any, TypeAlias

from deltaworks import clock
from deltaworks.config import Reference
from deltaworks.connect import slots, states
from deltaworks.connect.answers import Status
from deltaworks.connect.api import ConnectApi
from deltaworks.connect.connector import Connector
from deltaworks.connect.slots import Slot, Trouble
from deltaworks.errors import ConfigurationError, ConnectUnavailableError
from deltaworks.settings import Settings

Look: TypeAlias = Callable[[Connector], Slot | None]
"""Says what the slot of a connector of the project is; None: nobody here can ask."""
SOON_S = 3.0
"""How long all databases together may take, for somebody who waits."""
_CONNECT_S = 2
_ANSWER_MS = 2_000
_REFERENCE = re.compile(r"\$\{(?P<provider>[^}:]+):(?:(?P<path>[^:}]*):)?(?P<key>[^}]+)\}")
_PROPERTY = re.compile(r"\s*([^\s:=#!]+)\s*[:=\s]\s*(.*?)\s*")
_SSL = {"database.sslmode": "sslmode", "database.sslrootcert": "sslrootcert"}
_QUERY = """\
SELECT to_jsonb(found), pg_wal_lsn_diff(
    CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, confirmed_flush_lsn
)::bigint
FROM pg_replication_slots AS found WHERE slot_name = %s
"""
"""The slot as a document, as each version of PostgreSQL has other columns, and how far its reader is behind."""


def look(settings: Settings, connector: Connector) -> Slot | None:
    """The slot of a connector, as its database has it.

    Args:
        settings: of the project; they know the database of the home.
        connector: of the project.

    Returns:
        None: it reads no PostgreSQL, or no password is known here.
    """
    properties = connector.properties
    name = slots.slot_of(properties)
    login = None if name is None else _login(settings, properties)
    if name is None or login is None:
        return None
    try:
        import psycopg
    except ModuleNotFoundError:
        return None
    try:
        with psycopg.connect(**login, autocommit=True) as connection:
            row = connection.execute(_QUERY, (name,)).fetchone()
    except psycopg.Error:
        return Slot(name=name, known=False)
    if row is None:
        return Slot(name=name, exists=False)
    said, behind = row
    return Slot(
        name=name,
        wal_status=said.get("wal_status"),
        why=said.get("invalidation_reason"),
        behind_bytes=None if behind is None else max(0, behind),
    )


def unknown(connector: Connector) -> Slot | None:
    """No database is asked."""
    return None


def trouble(api: ConnectApi, name: str, status: Status | None, slot: Slot | None) -> Trouble | None:
    """What is wrong with what a connector has not read; None: nothing, or nothing that is known.

    Args:
        api: of a worker; it is asked whether the connector has read something, if its slot is gone.
        name: of the connector.
        status: what it and its tasks do.
        slot: from `look`.

    Raises:
        ConnectUnavailableError: the worker does not answer.
    """
    if status is not None and (found := states.lost(status)) is not None:
        return found
    if slot is None:
        return None
    return slots.assess(slot, has_offsets=slot.exists or _has_read(api, name))


@dataclass(frozen=True)
class Seen:
    """What is known of the log that a connector has not read."""

    slot: Slot | None
    """None: it has none, nobody here can ask its database, or that has not answered soon."""
    trouble: Trouble | None
    """None: nothing is known to be wrong."""
    answered: bool
    """False: its database would say more, and does not answer now."""


def seen_soon(
    settings: Settings, api: ConnectApi, connectors: Mapping[str, Connector], statuses: Mapping[str, Status]
) -> dict[str, Seen]:
    """Connector -> its slot and what is wrong with it, as far as that is known within seconds.

    Args:
        settings: of the project.
        api: of a worker.
        connectors: of the project.
        statuses: connector -> what it and its tasks do; others are not looked at.
    """
    asked = {
        name: _asked(settings, connectors[name])
        for name in statuses
        if name in connectors and slots.slot_of(connectors[name].properties) is not None
    }
    until = clock.ticks_s() + SOON_S
    found: dict[str, Seen] = {}
    for name, status in statuses.items():
        slot = None
        with contextlib.suppress(TimeoutError):
            slot = asked[name].result(max(0.0, until - clock.ticks_s())) if name in asked else None
        with contextlib.suppress(ConnectUnavailableError):
            answered = name not in asked or (asked[name].done() and (slot is None or slot.known))
            found[name] = Seen(slot, trouble(api, name, status, slot), answered)
    return found


def _asked(settings: Settings, connector: Connector) -> Future[Slot | None]:
    """Asks in a thread for which nobody waits at the end: a name server may take a minute."""
    answer: Future[Slot | None] = Future()

    def ask() -> None:
        try:
            answer.set_result(look(settings, connector))
        except BaseException as error:
            answer.set_exception(error)

    Thread(target=ask, daemon=True).start()
    return answer


def _has_read(api: ConnectApi, name: str) -> bool:
    try:
        return any(each.offset for each in api.offsets(name))
    except ConfigurationError:
        return False  # workers older than Kafka 3.6 do not say so


def _login(settings: Settings, properties: Mapping[str, str]) -> dict[str, Any] | None:
    """How libpq gets into the database of a connector; None: no password is known here."""
    given = {setting: followed(each) for setting, each in properties.items() if setting.startswith("database.")}
    host, user, port, database = (
        given.get(f"database.{each}") or "" for each in ("hostname", "user", "port", "dbname")
    )
    if not host or not user or not database:
        return None
    login: dict[str, Any] = {
        "host": host,
        "port": port or "5432",
        "user": user,
        "dbname": database,
        "connect_timeout": _CONNECT_S,
        "options": f"-c statement_timeout={_ANSWER_MS}",
        "application_name": "deltaworks status",
        **{name: value for setting, name in _SSL.items() if (value := given.get(setting))},
    }
    if password := given.get("database.password"):
        return {**login, "password": password}
    is_ours = host == "127.0.0.1" and port == str(settings.source_postgres_port)
    passwords = settings.source_pgpass if is_ours else Path.home() / ".pgpass"
    return {**login, "passfile": str(passwords)} if passwords.is_file() else None


def followed(value: str) -> str | None:
    """A value of a setting, with its reference followed on this machine; None: that leads nowhere here."""
    if (found := _REFERENCE.fullmatch(value)) is None:
        return None if "${" in value else value
    path, key = found["path"] or "", found["key"]
    try:
        match found["provider"]:
            case "env":
                return Reference(origin="a connector", env=key).read()
            case "file":
                return _property(Path(path), key)
            case "directory":
                return (Path(path) / key).read_text().strip()
    except (ConfigurationError, OSError, UnicodeDecodeError):
        return None
    return None


def _property(file: Path, key: str) -> str | None:
    """A value of a file of properties, as far as people write them."""
    for line in file.read_text().splitlines():
        found = _PROPERTY.fullmatch(line)
        if found is not None and found[1] == key:
            return found[2]
    return None
