"""The trash of a table: files that no log names any more are kept for a while, so that a mistake can be undone.

```
<table>/_trash/<time ms>/<path in the table>
```

It holds the files of a torn log version, and files that others have removed from the table, once a driver has seen
it. Readers, VACUUM and listings of the table ignore folders whose names begin with `_`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from deltaworks.files import files_in, link, make_folder, remove_tree, sync_folder
from deltaworks.lakehouse import layout


class Trash:
    """The trash of one table.

    Args:
        table: the table's folder.
    """

    def __init__(self, table: Path) -> None:
        self._table, self._folder = table, table / layout.TRASH_FOLDER

    def put(self, paths: Iterable[str], now_ms: int) -> int:
        """Moves files of the table to the trash; returns how many existed."""
        moved = 0
        for path in paths:
            target = self._folder / f"{now_ms:016d}" / path
            make_folder(target.parent)
            try:
                (self._table / path).rename(target)
                moved += 1
            except FileNotFoundError:
                continue
        return moved

    def put_version(self, name: str, now_ms: int) -> None:
        """Moves a file of the log to the trash, durably."""
        log = files_in(self._table / layout.LOG_FOLDER)
        if (found := log.get(name)) is not None:
            files_in(self._folder).put_if_absent(f"{now_ms:016d}/{layout.LOG_FOLDER}/{name}", found.data)
            log.delete(name)

    def keep(self, paths: Iterable[str], now_ms: int) -> None:
        """Gives files of the table a second name in the trash, unless they have one."""
        for path in paths:
            if (self._table / path).exists() and self.find(path) is None:
                target = self._folder / f"{now_ms:016d}" / path
                link(self._table / path, target)
                sync_folder(target.parent)

    def find(self, path: str, size_bytes: int | None = None) -> Path | None:
        """The path of a file of the table in the trash, or among those that publications keep."""
        for folder in (self._folder, self._table / layout.RETAINED_FOLDER):
            for time in reversed(_names(folder)):
                found = folder / time / path
                if found.is_file() and size_bytes in (None, found.stat().st_size):
                    return found
        return None

    def expire(self, older_than_ms: int) -> None:
        """Deletes files that were put here before a time."""
        for name in _names(self._folder):
            if not name.isdigit() or int(name) >= older_than_ms:
                break
            remove_tree(self._folder / name)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir())
    except FileNotFoundError:
        return []
