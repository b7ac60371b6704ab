"""What a part compared, printed as it happens, and a table of all parts at the end."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass
class Findings:
    """Of one part."""

    part: str
    checks: int = 0
    wrong: list[str] = field(default_factory=list)
    rows: int = 0
    """That were compared."""
    begun: float = field(default_factory=time.monotonic)

    def rows_equal(self, what: str, rows: int, different: int, *, may_be_empty: bool = False) -> None:
        """A comparison of rows; of none at all it is none, unless that may be."""
        self.rows += rows
        self.holds(f"{what}: {rows:,} rows, {different:,} differ", different == 0 and (rows > 0 or may_be_empty))

    def holds(self, what: str, fact: bool) -> bool:
        """Anything else that has to be so; whether it is."""
        self.checks += 1
        if not fact:
            self.wrong.append(what)
        self.say(f"{'ok   ' if fact else 'WRONG'} {what}")
        return fact

    def say(self, line: str) -> None:
        """What happens."""
        print(f"{self.part:9} {time.monotonic() - self.begun:6.0f} s  {line}", flush=True)

    def summary(self, seconds: float) -> str:
        """One line of the table."""
        verdict = f"{len(self.wrong)} WRONG" if self.wrong else "ok"
        return f"{self.part:9} {self.checks:6,} {self.rows:13,} {seconds:8.0f}  {verdict}"
