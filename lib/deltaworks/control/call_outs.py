"""Which systems count as down, as the tasks of this machine say: a small file per operator and worker process.

The heartbeat shows them, so that whoever looks at a stream that waits knows for whom. They may be lost.
"""

from __future__ import annotations

import os
from pathlib import Path

from deltaworks.breaker import State
from deltaworks.files import remove_tree, replace_file


def note(folder: Path, operator: str, state: State) -> None:
    """Notes the state of an operator's breaker in this process."""
    file = folder / str(os.getpid()) / operator
    if state == "closed":
        file.unlink(missing_ok=True)
    else:
        replace_file(file, state.encode())


def states(folder: Path) -> dict[str, str]:
    """Operator -> `open` or `half-open`, of those that are not closed in all processes that run."""
    found: dict[str, str] = {}
    for file in sorted(folder.glob("*/*")):
        if not Path(f"/proc/{file.parent.name}").exists():
            continue
        try:
            said = file.read_text()
        except FileNotFoundError:
            continue
        found[file.name] = max(said, found.get(file.name, "closed"), key=lambda each: each == "open")
    return found


def clear(folder: Path) -> None:
    """Forgets what an earlier driver's processes have noted."""
    remove_tree(folder)
