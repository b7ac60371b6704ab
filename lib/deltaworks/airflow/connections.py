"""Airflow's connections: how one is found, and what of it is a setting.

`hook` makes all settings of a connection of the type `deltaworks`. `value_of` looks up one value, for
`deltaworks.toml`, which may refer to any connection: `{ airflow = "shop_kafka", field = "password" }`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from deltaworks.errors import ConfigurationError

if TYPE_CHECKING:
    from airflow.sdk import Connection

T = TypeVar("T")


class _Tls(msgspec.Struct, frozen=True):
    sslmode: str | None = None
    sslrootcert: str | None = None


def value_of(conn_id: str, field: str) -> str:
    """One value of a connection, which Airflow looks up as it does for a task, a hook or a DAG file.

    Args:
        conn_id: id of the connection.
        field: see `config.Reference.field`.

    Raises:
        ConfigurationError: there is no such connection, or it does not have the value; the message has no value of it.
    """
    hint = (
        "tasks of Airflow find the connections of its database; "
        f"any other process needs AIRFLOW_CONN_{conn_id.upper()} or a secrets backend"
    )
    try:
        with there(conn_id, hint=hint):
            connection = BaseHook.get_connection(conn_id)
    except ConfigurationError:
        raise
    except Exception as error:  # of Airflow's API or of a secrets backend
        raise ConfigurationError(
            f"Airflow cannot look up the connection {conn_id!r}: {type(error).__name__}.", hint=hint
        ) from None
    value = _value(connection, field)
    if value in (None, "") or isinstance(value, dict | list):
        raise ConfigurationError(f"The connection {conn_id!r} has no text or number in {field!r}.")
    return as_text(value)


def registry_url(connection: Connection) -> str:
    """The PostgreSQL of a connection, as `control_url` has it.

    Raises:
        ConfigurationError: the extra of the connection cannot be used.
    """
    from sqlalchemy.engine import URL  # not where DAGs are parsed

    tls = decoded(connection, _Tls)
    query = {"sslmode": tls.sslmode, "sslrootcert": tls.sslrootcert}
    return URL.create(
        "postgresql+psycopg",
        username=connection.login or "deltaworks",
        password=connection.password or None,
        host=connection.host,
        port=connection.port,
        database=connection.schema or "deltaworks",
        query={name: value for name, value in query.items() if value},
    ).render_as_string(hide_password=False)


def decoded(connection: Connection, kind: type[T]) -> T:
    """The extra of a connection.

    Raises:
        ConfigurationError: it is not of this kind.
    """
    try:
        return msgspec.json.decode(connection.extra or "{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"The extra of the connection {connection.conn_id!r} cannot be used: {error}."
        ) from None


def as_text(value: str | bool | int | float) -> str:
    """A value of an extra as the text of a setting."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@contextmanager
def there(conn_id: str, *, named_by: str | None = None, hint: str | None = None) -> Iterator[None]:
    """Says which connection is missing, and who needs it."""
    try:
        yield
    except AirflowNotFoundException:
        named = "" if named_by is None else f", which the connection {named_by!r} names"
        raise ConfigurationError(
            f"There is no connection {conn_id!r}{named}.",
            hint=hint or f"add it under Admin > Connections, or with `airflow connections add {conn_id}`",
        ) from None


def _value(connection: Connection, field: str) -> Any:
    kind, _, name = field.partition(".")
    if kind == "extra":
        return decoded(connection, dict[str, Any]).get(name)
    if kind == "url":
        return registry_url(connection) if connection.host else None
    return getattr(connection, kind)
