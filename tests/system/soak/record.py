"""The record of a run: a JSON line per event, the table by kind, the last line."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Fault:
    """One fault that fired."""

    kind: str
    what: str
    """What it hit."""
    at_s: float
    recovered_after_s: float | None = None
    refused: str | None = None
    """The error with which a stream refused to go on."""
    way_out: str | None = None
    """What was done then, as the error said."""
    lost: int = 0
    twice: int = 0
    """Rows that the comparison after it found, and no earlier one."""


@dataclass
class Record:
    """Everything that happened."""

    file: Path
    faults: list[Fault] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """A stream that did not recover, a reader that saw what was never committed."""
    seen_lost: int = 0
    seen_twice: int = 0
    """Rows that belong to no fault: a reader outside missed them, or saw them again, or no fault came before."""

    def note(self, event: str, **content: Any) -> None:
        """One line."""
        with self.file.open("a") as out:
            out.write(json.dumps({"at": round(time.time(), 3), "event": event, **content}) + "\n")

    def fired(self, fault: Fault) -> None:
        self.faults.append(fault)

    def settled(self, fault: Fault) -> None:
        """Nothing more will be said of it."""
        self.note("fault", **asdict(fault))

    def failed(self, what: str, *, lost: int = 0, twice: int = 0) -> None:
        """The run ends.

        Args:
            lost: Rows that are missing, and that no fault is blamed for.
            twice: Rows that are there again, likewise.
        """
        self.failures.append(what)
        self.seen_lost += lost
        self.seen_twice += twice
        self.note("failure", what=what)

    @property
    def lost(self) -> int:
        return self.seen_lost + sum(fault.lost for fault in self.faults)

    @property
    def twice(self) -> int:
        return self.seen_twice + sum(fault.twice for fault in self.faults)

    def table(self) -> str:
        """A row per kind."""
        by_kind: dict[str, list[Fault]] = defaultdict(list)
        for fault in self.faults:
            by_kind[fault.kind].append(fault)
        lines = [f"{'kind':32} {'fired':>5} {'recovered after':>18} {'refused':>7} {'lost':>6} {'twice':>6}"]
        for kind, faults in sorted(by_kind.items()):
            times = sorted(fault.recovered_after_s for fault in faults if fault.recovered_after_s is not None)
            spread = f"{times[len(times) // 2]:.0f} s, max {times[-1]:.0f} s" if times else "never"
            refused = sum(fault.refused is not None for fault in faults)
            lost, twice = sum(fault.lost for fault in faults), sum(fault.twice for fault in faults)
            lines.append(f"{kind:32} {len(faults):5} {spread:>18} {refused:7} {lost:6} {twice:6}")
        return "\n".join(lines)

    def last_line(self) -> str:
        """What scripts read."""
        kinds = len({fault.kind for fault in self.faults})
        return f"soak: {len(self.faults)} faults of {kinds} kinds, {self.lost} lost, {self.twice} twice"

    @property
    def exact(self) -> bool:
        return not self.lost and not self.twice and not self.failures
