"""Which systems count as down, as the tasks of this machine say: a note per operator (`task_notes`).

The heartbeat shows them, so that whoever looks at a stream that waits knows for whom.
"""

from __future__ import annotations

from pathlib import Path

from deltaworks.breaker import State
from deltaworks.control import task_notes


def note(folder: Path, operator: str, state: State) -> None:
    """Notes the state of an operator's breaker in this process."""
    task_notes.note(folder, operator, None if state == "closed" else state.encode())


def states(folder: Path) -> dict[str, str]:
    """Operator -> `open` or `half-open`, of those that are not closed in all processes that run."""
    found: dict[str, str] = {}
    for operator, content in task_notes.noted(folder):
        found[operator] = max(content.decode(), found.get(operator, "closed"), key=lambda each: each == "open")
    return found
