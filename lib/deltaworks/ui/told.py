"""What the process says that runs code of the project; see `described`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from deltaworks.ui.access import Client
from deltaworks.ui.graph import Graph

if TYPE_CHECKING:
    from deltaworks.connectors.overview import Connectors as ConnectorsSeen


class StoreDescribed(msgspec.Struct, frozen=True, kw_only=True):
    """A store of a stream."""

    name: str
    kind: str
    """Such as `key-value`, `window`, `session`, `versioned`."""
    stage: int
    retention_ms: int | None


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline, as its code says."""

    graph: Graph
    stores: tuple[StoreDescribed, ...]
    tables: tuple[str, ...]
    """Delta tables that it writes."""
    dead_letters: str | None
    """The table of its dead letters."""


class ConnectorListed(msgspec.Struct, frozen=True, kw_only=True):
    """A connector of Kafka Connect."""

    name: str
    desired: str | None
    state: str
    tasks: int
    running_tasks: int
    failed_tasks: int
    restarts: int
    dead_letters: int | None
    lag_records: int | None
    """Of a sink: records of its topics that it has not committed."""
    lag_bytes: int | None
    """Of a source of PostgreSQL: what it has not confirmed of the database's log."""
    incidents: int
    """The number of those that are open."""
    reason: str | None
    """null for viewers."""


class Connectors(msgspec.Struct, frozen=True, kw_only=True):
    """The connectors of the project."""

    connectors: list[ConnectorListed]
    problem: str | None
    """Why Kafka Connect says nothing; viewers learn only that."""

    @classmethod
    def of(cls, seen: ConnectorsSeen) -> Connectors:
        listed = [
            ConnectorListed(**{name: getattr(each, name) for name in ConnectorListed.__struct_fields__})
            for each in seen.connectors
        ]
        return cls(connectors=listed, problem=seen.problem)

    def as_seen_by(self, client: Client) -> Connectors:
        """What a client may see of it."""
        seen = [each for each in self.connectors if client.may_see_connector(each.name)]
        if client.operates:
            return Connectors(connectors=seen, problem=self.problem)
        return Connectors(
            connectors=[msgspec.structs.replace(each, reason=None) for each in seen],
            problem=self.problem and "Kafka Connect does not answer.",
        )


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """Why nothing can be said."""

    error: str
    hint: str | None = None


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One of them."""

    pipeline: Described | None = None
    connectors: Connectors | None = None
    unreadable: Unreadable | None = None
