"""What consumers of Kafka are told of a publication or a rollback, from before its first commit until they were told.

It is written down before the first commit, and *released* after the last one, like the record of the publication. What
is released is sent once (`control.corrections`), whenever somebody comes to do it:

```
publications/corrections/<run>/<action>-<round>/corrections.json    what is sent, and where
                                                <table>.parquet     the rows (`corrected_rows`)
```

A publication that was taken back before its last commit has released nothing, and so does the rollback of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from deltaworks import formats
from deltaworks.clock import wall_ms
from deltaworks.errors import TableError
from deltaworks.files import remove_tree, replace_file
from deltaworks.names import FILE, RUN

Action = Literal["publish", "rollback"]
FORMAT = 1
"""Version of what is kept, and of the records that are made of it."""
TRANSACTION_RECORDS = 100_000
"""Records of one transaction; a consumer sees up to this many at once."""
_FOLDER = "corrections"


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
    def name(self) -> str:
        """Identifies them among all of a pipeline."""
        return f"{self.run_id}/{self.action}-{self.round}"

    @property
    def digest(self) -> str:
        """Identifies what is sent."""
        return hashlib.sha256(msgspec.json.encode(msgspec.structs.replace(self, sent_ms=None))).hexdigest()


def release(publications: Path, run_id: str, action: Action, number: int) -> None:
    """Lets them be sent: all tables show it."""
    folder = folder_of(publications, run_id, action, number)
    kept = read(folder)
    if kept is not None and kept.released_ms is None:
        save(folder, msgspec.structs.replace(kept, released_ms=wall_ms()))


def is_released(publications: Path, run_id: str, action: Action, number: int) -> bool:
    """Whether they are sent, or will be."""
    kept = read(folder_of(publications, run_id, action, number))
    return kept is not None and kept.released_ms is not None


def drop(publications: Path, run_id: str, action: Action, number: int) -> None:
    """Forgets what was never released."""
    remove_tree(folder_of(publications, run_id, action, number))


def of_run(publications: Path, run_id: str) -> list[KeptCorrections]:
    """What was released of a run, in order."""
    return [kept for kept in _all(publications, run_id) if kept.released_ms is not None]


def unsent(publications: Path) -> list[KeptCorrections]:
    """What is released and not sent, in the order in which the tables have shown it."""
    return [kept for kept in _all(publications, "*") if kept.released_ms is not None and kept.sent_ms is None]


def note_sent(publications: Path, kept: KeptCorrections) -> None:
    """Notes that all are sent; the rows are not needed any more."""
    folder = folder_of(publications, kept.run_id, kept.action, kept.round)
    save(folder, msgspec.structs.replace(kept, sent_ms=wall_ms()))
    for table in kept.tables:
        rows_of(folder, table).unlink(missing_ok=True)


def _all(publications: Path, run_id: str) -> Sequence[KeptCorrections]:
    """What is kept, in the order in which it was released."""
    folders = (file.parent for file in (publications / _FOLDER).glob(f"{run_id}/*/{_FOLDER}.json"))
    found = [kept for folder in folders if (kept := read(folder)) is not None]
    return sorted(found, key=lambda kept: (kept.released_ms or 0, kept.made_ms, kept.name))


def read(folder: Path) -> KeptCorrections | None:
    """What is kept in a folder; None: nothing."""
    path = folder / f"{_FOLDER}.json"
    return formats.read(
        path,
        KeptCorrections,
        FORMAT,
        f"What is told of a publication, {path},",
        damaged="bring the file back from a copy of the folder; without it, nobody knows what was sent",
        error=TableError,
    )


def save(folder: Path, kept: KeptCorrections) -> None:
    """Replaces it atomically and durably."""
    replace_file(folder / f"{_FOLDER}.json", msgspec.json.format(msgspec.json.encode(kept), indent=1), durable=True)


def rows_of(folder: Path, table: str) -> Path:
    """The file with the rows of a table."""
    return folder / f"{FILE.checked(table, folder)}.parquet"


def folder_of(publications: Path, run_id: str, action: Action, number: int) -> Path:
    """Where the corrections of a run's publication, or its rollback, are kept."""
    root = publications / _FOLDER
    return root / RUN.checked(run_id, root) / f"{action}-{number}"
