"""A month of one-second commits, with a simulated clock: at its end, nothing costs more than twice the first day.

The simulation is that of `make bench-retention`, and says which commits the short way (`SPARSE`) leaves out. In full it
is an hour of CPU: `make check-analysts PARTS=month MONTH=1`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from tests.benchmarks import retention
from tests.system.analysts.findings import Findings
from tests.system.analysts.readers import READERS

DAYS = 30
SPARSE = timedelta(minutes=2)
_EVERY = timedelta(seconds=1)
_TWICE = 2.0


def of(days: int, sparse: timedelta | None) -> Callable[[Path, Findings, float], None]:
    """A part with so many days.

    Args:
        days: the first and the last are compared.
        sparse: between two commits where they do not matter; None: a second.
    """

    def check(work: Path, findings: Findings, seconds: float) -> None:
        """Its time does not depend on the budget."""
        found = []
        findings.say("the clock is simulated: it goes on with each commit; syncs are left out")
        with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="deltaworks-month-") as root:
            findings.say(retention.HEAD)
            for day in retention.simulate(Path(root), days, _EVERY, sparse=sparse, spark="Spark SQL" in READERS):
                found.append(day)
                findings.say(retention.line(day))
        for name, ratio in retention.growth(found[0], found[-1]).items():
            findings.holds(f"{name}: day {found[-1].day} / day 1 = {ratio:.2f}", ratio <= _TWICE)
        findings.counts |= {"days": len(found), "commits": sum(day.commits for day in found)}

    return check
