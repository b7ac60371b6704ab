"""What a publication or a rollback has to do elsewhere, from before its first commit until it is done.

It is written down before the first commit, and *released* after the last one, like the record of the publication:

```
publications/<what>/<run>/<action>-<round>/<what>.json      what is to be done, and where
                                           <table>.parquet  the rows (`corrected_rows`)
```

A publication that was taken back before its last commit has released nothing, and so does the rollback of it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, Protocol, TypeVar

import msgspec

from deltaworks import formats
from deltaworks.errors import DeltaworksError, TableError
from deltaworks.files import remove_tree, replace_file
from deltaworks.names import FILE, RUN

Action = Literal["publish", "rollback"]
_log = logging.getLogger(__name__)


class Kept(Protocol):
    """What is kept of one publication, or of one rollback."""

    @property
    def run_id(self) -> str: ...
    @property
    def action(self) -> Action: ...
    @property
    def round(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def made_ms(self) -> int: ...
    @property
    def released_ms(self) -> int | None: ...
    @property
    def needed(self) -> Collection[str]:
        """The tables whose rows are needed, still."""


K = TypeVar("K", bound=Kept)


@dataclass(frozen=True)
class Keeping(Generic[K]):
    """Where one kind of it is kept.

    Attributes:
        what: name of the folder and the documents.
        kind: of the documents.
        version: of their format.
        title: what a document is, as the beginning of a sentence.
        unknown: what nobody knows without it.
    """

    what: str
    kind: type[K]
    version: int
    title: str
    unknown: str

    def folder_of(self, publications: Path, run_id: str, action: Action, number: int) -> Path:
        """Where it is kept of a run's publication, or its rollback."""
        root = publications / self.what
        return root / RUN.checked(run_id, root) / f"{action}-{number}"

    def place_of(self, publications: Path, kept: K) -> Path:
        """Where something is kept."""
        return self.folder_of(publications, kept.run_id, kept.action, kept.round)

    def read(self, folder: Path) -> K | None:
        """What is kept in a folder; None: nothing."""
        path = folder / f"{self.what}.json"
        return formats.read(
            path,
            self.kind,
            self.version,
            f"{self.title}, {path},",
            damaged=f"bring the file back from a copy of the folder; without it, nobody knows {self.unknown}",
            error=TableError,
        )

    def save(self, folder: Path, kept: K) -> None:
        """Replaces it atomically and durably."""
        replace_file(
            folder / f"{self.what}.json", msgspec.json.format(msgspec.json.encode(kept), indent=1), durable=True
        )

    def is_released(self, publications: Path, run_id: str, action: Action, number: int) -> bool:
        """Whether it is done, or will be."""
        kept = self.read(self.folder_of(publications, run_id, action, number))
        return kept is not None and kept.released_ms is not None

    def drop(self, publications: Path, run_id: str, action: Action, number: int) -> None:
        """Forgets what was never released."""
        remove_tree(self.folder_of(publications, run_id, action, number))

    def sweep(self, publications: Path, begun: Collection[str]) -> list[Path]:
        """Removes rows that kills have left, and that no document names or needs; returns their files.

        For the committer of the tables before it writes rows, or while there is none: nobody else writes them. A
        document that cannot be read may need all rows beside it.

        Args:
            publications: folder of the records of publications.
            begun: the runs whose record says that a publication or a rollback is under way. What was not released of
                any other is left over: a kill came before its record, so no table shows it, and the same command makes
                it again; or it was taken back.
        """
        found: dict[Path, list[Path]] = {}
        for file in sorted((publications / self.what).glob("*/*/*.parquet")):
            found.setdefault(file.parent, []).append(file)
        removed = []
        for folder, rows in found.items():
            try:
                kept = self.read(folder)
            except DeltaworksError as error:
                _log.warning("rows in %s stay: %s", folder, error.message)
                continue
            if kept is not None and kept.released_ms is None and kept.run_id not in begun:
                kept = None
            needed = set[str]() if kept is None else {rows_of(folder, table).name for table in kept.needed}
            for file in rows:
                if file.name not in needed:
                    file.unlink(missing_ok=True)
                    removed.append(file)
            if kept is None:
                remove_tree(folder)
        return removed

    def of_run(self, publications: Path, run_id: str) -> list[K]:
        """What was released of a run, in order."""
        return [kept for kept in self.all_of(publications, run_id) if kept.released_ms is not None]

    def all_of(self, publications: Path, run_id: str = "*") -> Sequence[K]:
        """What is kept, of one run or of all, in the order in which it was released."""
        folders = (file.parent for file in (publications / self.what).glob(f"{run_id}/*/{self.what}.json"))
        found = [kept for folder in folders if (kept := self.read(folder)) is not None]
        return sorted(found, key=lambda kept: (kept.released_ms or 0, kept.made_ms, kept.name))


def rows_of(folder: Path, table: str) -> Path:
    """The file with the rows of a table."""
    return folder / f"{FILE.checked(table, folder)}.parquet"


def remove_rows(folder: Path, tables: Sequence[str]) -> None:
    """Removes the rows of tables: they are not needed any more."""
    for table in tables:
        rows_of(folder, table).unlink(missing_ok=True)
