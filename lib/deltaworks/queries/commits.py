"""Which batch Spark has committed last."""

from __future__ import annotations

import os
from pathlib import Path


class Commits:
    """Spark's notes of the batches that it has committed: a file each, named by its own count from 0, without gaps.

    Args:
        folder: of the notes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._last: int | None = None

    def last(self) -> int | None:
        """The last batch, by Spark's count; None: there is none.

        Two looks at the folder while nothing has changed: listing it takes longer, the more notes it has.
        """
        if self._last is None or not self._is_there(self._last):
            self._last = self._listed()
        while self._last is not None and self._is_there(self._last + 1):
            self._last += 1
        return self._last

    def _is_there(self, batch: int) -> bool:
        try:
            os.stat(f"{self._folder}/{batch}")  # noqa: PTH116 (a path object costs as much again)
        except FileNotFoundError:
            return False
        return True

    def _listed(self) -> int | None:
        try:
            names = [path.name for path in Path(self._folder).iterdir()]
        except FileNotFoundError:
            return None
        return max((int(name) for name in names if name.isdecimal()), default=None)
