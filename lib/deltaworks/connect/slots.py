"""The replication slot of a PostgreSQL: whether the log that a connector has not read is still there, in one sentence.

A slot keeps the log for its reader, up to `max_slot_wal_keep_size`. One that falls behind further is lost: what it has
not read is gone, and no restart helps. Debezium says so in several ways. But a task that begins with a lost slot waits
half an hour until it is valid, fails then, and does not say why (3.5: `readReplicationSlotInfo`). So the database is
asked as well (`connectors/slots.py`). Other databases lose their logs, too; Debezium says that in the same words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from deltaworks.connect.connector import CLASS
from deltaworks.connect.debezium import POSTGRES

SLOT = "slot.name"
_DEFAULT = "debezium"
_WHERE = "docs/how-to/change-data-capture.md#a-lost-slot"
WAY_OUT = f"no restart helps, it needs a new snapshot: {_WHERE}"
_QUOTED = r'replication slot "?(?P<slot>[^"\s]+)"?'
_SAID = (
    re.compile(rf"can no longer (?:get changes from|access) {_QUOTED}"),
    re.compile(r"This (?:replication )?slot has been invalidated"),
    re.compile(rf"{_QUOTED} does not exist"),
    re.compile(r"requested WAL segment \S+ has already been removed"),
    re.compile(r"offset to start reading from has been removed from the database write-ahead log"),
    re.compile(r"trying to read change stream starting at .*?but this is no longer available on the server", re.DOTALL),
    re.compile(r"Cannot seek to the last known offset '[^']*' on replication slot '(?P<slot>[^']+)'"),
)
"""What PostgreSQL and Debezium 3 say when what a connector has not read is gone."""
Danger = Literal["lost", "endangered"]


@dataclass(frozen=True, kw_only=True)
class Slot:
    """A row of `pg_replication_slots`, or that there is none."""

    name: str
    wal_status: str | None = None
    """`reserved`, `extended`, `unreserved` or `lost`; None: there is no such slot, or it keeps nothing yet."""
    exists: bool = True
    why: str | None = None
    """`invalidation_reason` of PostgreSQL 17 and newer."""
    known: bool = True
    """False: the database does not answer now."""
    behind_bytes: int | None = None
    """How much of the database's log its reader has not confirmed; None: that is not known."""


@dataclass(frozen=True)
class Trouble:
    """What is wrong with the slot of a connector."""

    danger: Danger
    """`lost`: what the connector has not read is gone; `endangered`: it is about to be."""
    told: str
    """One sentence, with the way out."""


def slot_of(properties: Mapping[str, str]) -> str | None:
    """The slot that a connector reads; None: it reads no PostgreSQL, or a snapshot only, for which it makes none."""
    if properties.get(CLASS) != POSTGRES or properties.get("snapshot.mode") == "initial_only":
        return None
    return properties.get(SLOT, _DEFAULT)


def said(trace: str | None) -> Trouble | None:
    """What the trace of a failed task says of a log that is gone; None: nothing."""
    for pattern in _SAID if trace else ():
        if (found := pattern.search(trace or "")) is not None:
            name = found.groupdict().get("slot")
            of_slot = "" if name is None else f", its replication slot '{name}' is lost"
            return Trouble("lost", f"the database no longer has what it has not read{of_slot}: {WAY_OUT}")
    return None


def assess(slot: Slot, *, has_offsets: bool) -> Trouble | None:
    """What a slot means for its connector; None: nothing is wrong.

    Args:
        slot: as the database has it.
        has_offsets: whether the connector has read something; before that, it has no slot.
    """
    if not slot.known:
        return None
    if not slot.exists:
        gone = f"its replication slot '{slot.name}' is gone from the database, and with it what it has not read"
        return Trouble("lost", f"{gone}: {WAY_OUT}") if has_offsets else None
    if slot.wal_status == "lost" or slot.why is not None:
        why = f" ({slot.why})" if slot.why else ""
        return Trouble("lost", f"its replication slot '{slot.name}' is lost{why}: {WAY_OUT}")
    if slot.wal_status == "unreserved":
        told = (
            f"its replication slot '{slot.name}' is so far behind that it is lost at the next checkpoint of the"
            f" database: let the connector read now, or raise max_slot_wal_keep_size: {_WHERE}"
        )
        return Trouble("endangered", told)
    return None
