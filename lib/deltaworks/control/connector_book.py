"""The connectors of Kafka Connect in the registry: which there should be, with which settings, and what was tried.

Whether a connector runs, is paused or stopped is Kafka Connect's own record: it keeps that in Kafka, and every tool
changes it there. What is here follows it. Connect does not know which connectors there should be at all, so that, and
the settings that were deployed, is recorded here. Settings have references in place of secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from deltaworks.control.registry import Registry
from deltaworks.control.registry_schema import connectors
from deltaworks.settings import Settings

Desired = Literal["running", "paused", "stopped", "deleted"]
DELETED: Desired = "deleted"


class ConnectorRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a connector; times are seconds before it was read, on the clock of the database."""

    name: str
    desired: Desired
    properties: dict[str, str]
    """The settings that were deployed last."""
    cluster: str
    """Id of the Kafka cluster of the workers that have it."""
    changed_ago_s: float
    """When somebody deployed or deleted it."""
    restarts: int = 0
    """Automatic restarts and deployments since it was last healthy for a while, or deployed by somebody."""
    restarted_ago_s: float | None = None
    failed_ago_s: float | None = None
    """Since when it is found failed or gone; None: it was not, when somebody looked."""
    drifted_ago_s: float | None = None
    """Since when file and cluster differ."""
    gave_up: str | None = None
    """Why it is no longer restarted."""


class ConnectorBook:
    """Access to the connectors in the registry; every method may raise `ControlUnavailableError`."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    @classmethod
    def of(cls, settings: Settings) -> ConnectorBook:
        """Those in the registry of the settings."""
        return cls(Registry.of(settings))

    def records(self) -> dict[str, ConnectorRecord]:
        """All connectors that were ever deployed or seen, by name; also those that were deleted."""
        query = sa.select(
            *(connectors.c[name] for name in ("name", "desired", "properties", "cluster", "restarts", "gave_up")),
            *(_ago(name) for name in ("changed", "restarted", "failed", "drifted")),
        ).order_by(connectors.c.name)
        with self._registry.transaction() as connection:
            rows = connection.execute(query).all()
        documents = ({str(name): value for name, value in row._mapping.items()} for row in rows)
        return {each["name"]: msgspec.convert(each, ConnectorRecord) for each in documents}

    def deployed(self, name: str, properties: Mapping[str, str], *, cluster: str, by: str) -> None:
        """Records that a connector should run from now on, and forgets what was tried before.

        Args:
            name: of the connector.
            properties: all of its settings, without secrets.
            cluster: see `ConnectorRecord`.
            by: who deploys it.
        """
        values = {
            "desired": "running",
            "properties": dict(properties),
            "cluster": cluster,
            "changed_by": by,
            "changed_at": sa.func.now(),
            "restarts": 0,
            "restarted_at": None,
            "failed_since": None,
            "drifted_since": None,
            "gave_up": None,
        }
        fresh = insert(connectors).values(name=name, **values)
        with self._registry.transaction() as connection:
            connection.execute(fresh.on_conflict_do_update(index_elements=[connectors.c.name], set_=values))

    def takes(self, name: str, properties: Mapping[str, str]) -> None:
        """Records the settings that the cluster has taken from the file."""
        self._change(name, properties=dict(properties))

    def desire(self, name: str, desired: Desired, *, by: str) -> bool:
        """Records what a connector should do; returns False if nobody has deployed or seen it."""
        statement = (
            sa.update(connectors)
            .where(connectors.c.name == name)
            .values(desired=desired, changed_by=by, changed_at=sa.func.now())
        )
        with self._registry.transaction() as connection:
            return connection.execute(statement).rowcount > 0

    def encouraged(self, name: str) -> None:
        """Forgets the restarts that were tried: somebody has restarted it."""
        self._change(name, restarts=0, restarted_at=None, failed_since=None, gave_up=None)

    def seen(self, name: str, desired: Desired | None, *, failed: bool, drifts: bool, recovered: bool) -> None:
        """Records what somebody has seen; a connector that was deleted meanwhile stays so.

        Args:
            name: of the connector.
            desired: what Kafka Connect has as its target; None: that is not known now.
            failed: it has failed, or is gone.
            drifts: file and cluster differ.
            recovered: earlier restarts no longer count.
        """
        now: Any = sa.func.now()
        values: dict[str, Any] = {
            "failed_since": sa.func.coalesce(connectors.c.failed_since, now) if failed else None,
            "drifted_since": sa.func.coalesce(connectors.c.drifted_since, now) if drifts else None,
        }
        values |= {} if desired is None else {"desired": desired}
        values |= {"restarts": 0, "gave_up": None} if recovered else {}
        self._change(name, **values)

    def claim(self, record: ConnectorRecord, restarts: int) -> bool:
        """Counts a restart before it is done; returns False if somebody else does it, or has deleted the connector.

        Args:
            record: as the caller has read it.
            restarts: the number of counted restarts, this one included.
        """
        statement = (
            sa.update(connectors)
            .where(
                connectors.c.name == record.name,
                connectors.c.desired == record.desired,
                connectors.c.failed_since.is_not(None),
                connectors.c.restarts == record.restarts,
            )
            .values(restarts=restarts, restarted_at=sa.func.now(), failed_since=None)
        )
        with self._registry.transaction() as connection:
            return connection.execute(statement).rowcount > 0

    def gave_up(self, name: str, reason: str) -> None:
        """Records that the connector is not restarted until somebody does it."""
        self._change(name, gave_up=reason)

    def _change(self, name: str, **values: Any) -> None:
        statement = sa.update(connectors).where(connectors.c.name == name, connectors.c.desired != DELETED)
        with self._registry.transaction() as connection:
            connection.execute(statement.values(**values))


def _ago(name: str) -> sa.Label[Any]:
    column = connectors.c[f"{name}_at" if name in ("changed", "restarted") else f"{name}_since"]
    passed = sa.extract("epoch", sa.func.now() - column)
    return sa.cast(passed, sa.Double).label(f"{name}_ago_s")
