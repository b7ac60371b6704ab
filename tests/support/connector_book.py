"""The connectors of a registry in memory, with a clock that a test sets: what `ConnectorBook` does in PostgreSQL.

`tests/integration/control/test_connector_book.py` shows that both do the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deltaworks.control.connector_book import ConnectorBook, ConnectorRecord, Desired


@dataclass
class Row:
    """A connector; times are in seconds."""

    desired: Desired
    properties: dict[str, str]
    cluster: str
    changed_by: str
    changed: float
    restarts: int = 0
    restarted: float | None = None
    failed: float | None = None
    drifted: float | None = None
    gave_up: str | None = None


@dataclass
class BookInMemory(ConnectorBook):
    """For one test."""

    now: float = 0.0
    rows: dict[str, Row] = field(default_factory=dict)

    def records(self) -> dict[str, ConnectorRecord]:
        return {
            name: ConnectorRecord(
                name=name,
                desired=row.desired,
                properties=row.properties,
                cluster=row.cluster,
                changed_ago_s=self.now - row.changed,
                restarts=row.restarts,
                restarted_ago_s=self._ago(row.restarted),
                failed_ago_s=self._ago(row.failed),
                drifted_ago_s=self._ago(row.drifted),
                gave_up=row.gave_up,
            )
            for name, row in sorted(self.rows.items())
        }

    def deployed(self, name: str, properties: Mapping[str, str], *, cluster: str, by: str) -> None:
        self.rows[name] = Row("running", dict(properties), cluster, by, self.now)

    def takes(self, name: str, properties: Mapping[str, str]) -> None:
        self._set(name, properties=dict(properties))

    def desire(self, name: str, desired: Desired, *, by: str) -> bool:
        if name in self.rows:
            row = self.rows[name]
            row.desired, row.changed_by, row.changed = desired, by, self.now
        return name in self.rows

    def encouraged(self, name: str) -> None:
        self._set(name, restarts=0, restarted=None, failed=None, gave_up=None)

    def seen(self, name: str, desired: Desired | None, *, failed: bool, drifts: bool, recovered: bool) -> None:
        row = self.rows[name]
        values: dict[str, Any] = {
            "failed": (self.now if row.failed is None else row.failed) if failed else None,
            "drifted": (self.now if row.drifted is None else row.drifted) if drifts else None,
        }
        values |= {} if desired is None else {"desired": desired}
        values |= {"restarts": 0, "gave_up": None} if recovered else {}
        self._set(name, **values)

    def claim(self, record: ConnectorRecord, restarts: int) -> bool:
        row = self.rows[record.name]
        if (row.desired, row.restarts) != (record.desired, record.restarts) or row.failed is None:
            return False
        row.restarts, row.restarted, row.failed = restarts, self.now, None
        return True

    def gave_up(self, name: str, reason: str) -> None:
        self._set(name, gave_up=reason)

    def _set(self, name: str, **values: Any) -> None:
        if name in self.rows and self.rows[name].desired != "deleted":
            for field_name, value in values.items():
                setattr(self.rows[name], field_name, value)

    def _ago(self, at: float | None) -> float | None:
        return None if at is None else self.now - at
