"""`python -m tests.faults.breakages [--green] [NAME ...]`: which tests turn red without which safeguard."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults import plant
from tests.faults.breakages import BREAKAGES

_ROOT = Path(__file__).parents[3]
_CACHE = "cache_dir=.deltaworks/cache/breakages"
"""Not that of the suite, so that `--last-failed` does not know these."""
_PYTEST = (sys.executable, "-m", "pytest", "-q", "-n0", "-rf", "--tb=short", "-o", _CACHE)
_WIDE = "400"
"""Columns: the reason of a failure is told in the same line."""


@dataclass(frozen=True)
class Run:
    """What some tests said."""

    exit_code: int
    output: str

    @property
    def failed(self) -> list[str]:
        """Tests that failed while they ran: neither in their fixtures, nor while collected, nor for want of time."""
        lines = self.output.splitlines()
        return [
            line.removeprefix("FAILED ") for line in lines if line.startswith("FAILED ") and "Timeout (" not in line
        ]

    def is_red(self, test: str) -> bool:
        """Whether a test has failed, or one of its cases."""
        return any(failed.startswith((f"{test} - ", f"{test}[")) or failed == test for failed in self.failed)


def run(tests: Sequence[str], *, breakage: str | None = None) -> Run:
    """Runs tests in a process of their own, with a breakage planted or without any."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment.pop(plant.VARIABLE, None)
    environment["COLUMNS"] = _WIDE
    if breakage is not None:
        environment[plant.VARIABLE] = breakage
    done = subprocess.run(
        [*_PYTEST, "-p", plant.__name__, *tests],
        cwd=_ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return Run(done.returncode, done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a breakage; default: all")
    parser.add_argument("--green", action="store_true", help="without any breakage: all their tests pass")
    chosen = parser.parse_args()
    names = chosen.names or list(BREAKAGES)
    if chosen.green:
        done = run(sorted({test for name in names for test in BREAKAGES[name].tests}))
        print(done.output)
        return done.exit_code
    unseen = 0
    for name in names:
        breakage = BREAKAGES[name]
        done = run(breakage.tests, breakage=name)
        red = [test for test in breakage.tests if done.is_red(test)]
        unseen += len(red) < len(breakage.tests)
        print(f"{name}  ({'-' if breakage.of is None else breakage.of.value})", flush=True)
        for test in breakage.tests:
            print(f"    {'red' if test in red else 'NOT RED'}  {test}", flush=True)
        if len(red) < len(breakage.tests):
            print(done.output, flush=True)
    return 1 if unseen else 0


if __name__ == "__main__":
    sys.exit(main())
