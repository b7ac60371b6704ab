"""Files that publications have removed from a table, on disk until nobody can want them back.

A second link to each, in a folder per publication: whatever becomes of the first (`DeltaLog.expire`, files that nobody
knows at a start, a vacuum by hand), the rows stay. The folder's name says when it was made, so nothing else has to
be remembered.
"""

from __future__ import annotations

import os
import shutil
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
        """Keeps files of the table; returns the name under which they are found again.

        What was kept for the same publication before goes: it was not committed.
        """
        for name in [name for name in self._names if name.split("-", 2)[1:] == [str(number), run_id]]:
            self.forget(name)
        name = f"{now_ms:016d}-{number}-{run_id}"
        made = []
        for path in paths:
            link(self._table / path, self._of(name) / path)
            made.append(self._of(name) / path)
        files.sync(made)
        if name not in self._names:
            self._names.append(name)
        return name

    def missing(self, name: str, paths: Iterable[str]) -> list[str]:
        """Which of these are not kept any more."""
        return [path for path in paths if not (self._of(name) / path).exists()]

    def restore(self, name: str, paths: Iterable[str]) -> None:
        """Files are again where the table had them."""
        made = [path for path in paths if not (self._table / path).exists()]
        for path in made:
            link(self._of(name) / path, self._table / path)
        files.sync([self._table / path for path in made])

    def path(self, name: str, path: str) -> str:
        """Where a kept file is, from the table's folder on."""
        return f"{layout.RETAINED_FOLDER}/{name}/{path}"

    def forget(self, name: str) -> None:
        """Nobody wants these back."""
        shutil.rmtree(self._of(name), ignore_errors=True)
        self._names = [other for other in self._names if other != name]

    def _of(self, name: str) -> Path:
        return self._folder / FILE.checked(name, self._folder)

    def expire(self, now_ms: int) -> None:
        """Forgets what is too old to be rolled back."""
        while self._names and int(self._names[0].partition("-")[0]) + self._keep_ms < now_ms:
            self.forget(self._names[0])


def link(source: Path, target: Path) -> None:
    """A second name for a file that never changes; a copy where there can be none, as on another disk."""
    files.make_folder(target.parent)
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(source, target)
