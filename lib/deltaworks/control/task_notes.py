"""What tasks of this machine say while a batch goes on: a small file per name and worker process.

A task tells its driver nothing before its batch ends. The heartbeat shows what is here; it may be lost.

```
<folder>/<process id>/<name>
```
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from deltaworks.files import is_hidden, remove_tree, replace_file


def note(folder: Path, name: str, content: bytes | None) -> None:
    """Notes something in this process; None: nothing any more."""
    file = folder / str(os.getpid()) / name
    if content is None:
        file.unlink(missing_ok=True)
    else:
        replace_file(file, content)


def noted(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of what all processes that run have noted."""
    for file in sorted(folder.glob("*/*")):
        if is_hidden(file.name) or not Path(f"/proc/{file.parent.name}").exists():
            continue
        try:
            yield file.name, file.read_bytes()
        except FileNotFoundError:  # it has just ended
            continue


def clear(folder: Path) -> None:
    """Forgets what an earlier driver's processes have noted."""
    remove_tree(folder)
