"""What consumers of Kafka are told of a publication or a rollback, from before its first commit until they were told.

It is kept in `publications/corrections` (`kept`). What is released is sent once (`control.corrections`), whenever
somebody comes to do it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from deltaworks.clock import wall_ms
from deltaworks.lakehouse.publish.kept import Action, Keeping, remove_rows

FORMAT = 1
"""Version of what is kept, and of the records that are made of it."""
TRANSACTION_RECORDS = 100_000
"""Records of one transaction; a consumer sees up to this many at once."""


class CorrectionsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Who is told of what."""

    topic: str
    tables: tuple[str, ...]
    same_batches: bool = True
    """The replay ran the recorded batches; otherwise batch ids and offsets behind exchanges mean nothing, and are null.
    """


class TableCorrections(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one table that differ."""

    rows: int
    columns: tuple[str, ...]
    """In the order of their numbers in the file."""
    identity: tuple[str, ...]
    """Those that say which row it is."""


class KeptCorrections(msgspec.Struct, frozen=True, kw_only=True):
    """The corrections of one publication, or of one rollback."""

    run_id: str
    action: Action
    round: int
    """How often the run has been published, this time included."""
    topic: str
    tables: dict[str, TableCorrections]
    per_transaction: int = TRANSACTION_RECORDS
    made_ms: int
    released_ms: int | None = None
    """When all tables showed it; None: not yet."""
    sent_ms: int | None = None
    format: int = FORMAT

    @property
    def count(self) -> int:
        """How many rows have changed."""
        return sum(table.rows for table in self.tables.values())

    @property
    def transactions(self) -> int:
        """In how many transactions they are sent: at least one, which says that nothing has changed."""
        return max(1, -(-self.count // self.per_transaction))

    @property
    def needed(self) -> frozenset[str]:
        """The tables whose rows are sent, still."""
        return frozenset(self.tables) if self.sent_ms is None else frozenset()

    @property
    def name(self) -> str:
        """Identifies them among all of a pipeline."""
        return f"{self.run_id}/{self.action}-{self.round}"

    @property
    def digest(self) -> str:
        """Identifies what is sent."""
        return hashlib.sha256(msgspec.json.encode(msgspec.structs.replace(self, sent_ms=None))).hexdigest()


KEEPING = Keeping("corrections", KeptCorrections, FORMAT, "What is told of a publication", "what was sent")


def release(publications: Path, run_id: str, action: Action, number: int) -> None:
    """Lets them be sent: all tables show it."""
    folder = KEEPING.folder_of(publications, run_id, action, number)
    kept = KEEPING.read(folder)
    if kept is not None and kept.released_ms is None:
        KEEPING.save(folder, msgspec.structs.replace(kept, released_ms=wall_ms()))


def unsent(publications: Path) -> list[KeptCorrections]:
    """What is released and not sent, in the order in which the tables have shown it."""
    return [kept for kept in KEEPING.all_of(publications) if kept.released_ms is not None and kept.sent_ms is None]


def note_sent(publications: Path, kept: KeptCorrections) -> None:
    """Notes that all are sent; the rows are not needed any more."""
    folder = KEEPING.place_of(publications, kept)
    KEEPING.save(folder, msgspec.structs.replace(kept, sent_ms=wall_ms()))
    remove_rows(folder, [*kept.tables])
