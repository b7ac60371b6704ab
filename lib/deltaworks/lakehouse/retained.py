"""Keeps the files that publications have removed from a table, until nobody can want them back.

Each file gets a second link, in a folder per publication. Whatever happens to the first (`DeltaLog.expire`, the removal
of unknown files at a start, a manual vacuum), the rows stay. The folder's name says when it was made, so nothing else
has to be remembered.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from deltaworks import files
from deltaworks.lakehouse import layout
from deltaworks.names import FILE


class RetainedFiles:
    """The files of one table that its publications have removed.

    Args:
        table: its folder.
        keep_ms: how long a publication can be rolled back.
    """

    def __init__(self, table: Path, *, keep_ms: int) -> None:
        self._table, self._folder, self._keep_ms = table, table / layout.RETAINED_FOLDER, keep_ms
        self._names = sorted(path.name for path in self._folder.iterdir()) if self._folder.is_dir() else []
        """The oldest first."""

    def keep(self, run_id: str, number: int, now_ms: int, paths: Iterable[str]) -> str:
        """Keeps files of the table; returns the name for finding them again.

        Files that were kept for the same publication before are dropped: it was not committed.
        """
        for name in [name for name in self._names if name.split("-", 2)[1:] == [str(number), run_id]]:
            self.forget(name)
        name = f"{now_ms:016d}-{number}-{run_id}"
        made = []
        for path in paths:
            files.link(self._table / path, self._of(name) / path)
            made.append(self._of(name) / path)
        files.sync(made)
        if name not in self._names:
            self._names.append(name)
        return name

    def missing(self, name: str, paths: Iterable[str]) -> list[str]:
        """Which of these files are no longer kept."""
        return [path for path in paths if not (self._of(name) / path).exists()]

    def restore(self, name: str, paths: Iterable[str]) -> None:
        """Puts files back where the table had them."""
        made = [path for path in paths if not (self._table / path).exists()]
        for path in made:
            files.link(self._of(name) / path, self._table / path)
        files.sync([self._table / path for path in made])

    def path(self, name: str, path: str) -> str:
        """The path of a kept file, relative to the table's folder."""
        return f"{layout.RETAINED_FOLDER}/{name}/{path}"

    def forget(self, name: str) -> None:
        """Drops files that nobody wants back."""
        files.remove_tree(self._of(name))
        self._names = [other for other in self._names if other != name]

    def _of(self, name: str) -> Path:
        return self._folder / FILE.checked(name, self._folder)

    def expire(self, now_ms: int) -> None:
        """Drops what is too old to be rolled back."""
        while self._names and int(self._names[0].partition("-")[0]) + self._keep_ms < now_ms:
            self.forget(self._names[0])
