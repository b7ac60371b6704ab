"""`python -m tests.mutation [--green] [NAME ...]`: which tests turn red without which safeguard."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutation import MUTATIONS, plugin

_ROOT = Path(__file__).parents[2]
_CACHE = "cache_dir=.pytest_cache/mutation"
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

    def reason(self, test: str) -> str | None:
        """Why a test has failed, or the first of its cases; None: it has not."""
        mine = (failed for failed in self.failed if failed == test or failed.startswith((f"{test} - ", f"{test}[")))
        first = next(mine, None)
        return None if first is None else first.partition(" - ")[2]


def run(tests: Sequence[str], *, mutation: str | None = None) -> Run:
    """Runs tests in a process of their own, with a mutation or without any."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment.pop(plugin.VARIABLE, None)
    environment["COLUMNS"] = _WIDE
    if mutation is not None:
        environment[plugin.VARIABLE] = mutation
    first = ("--exitfirst",) if mutation is not None and len(tests) == 1 else ()  # one red case of a test is enough
    done = subprocess.run(
        [*_PYTEST, *first, "-p", plugin.__name__, *tests],
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
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a mutation; default: all")
    parser.add_argument("--green", action="store_true", help="without any mutation: all their tests pass")
    chosen = parser.parse_args()
    names = chosen.names or list(MUTATIONS)
    if chosen.green:
        done = run(sorted({test for name in names for test in MUTATIONS[name].tests}))
        print(done.output)
        return done.exit_code
    unseen = 0
    for name in names:
        mutation = MUTATIONS[name]
        done = run(mutation.tests, mutation=name)
        reasons = {test: done.reason(test) for test in mutation.tests}
        print(f"{name}  ({'-' if mutation.of is None else mutation.of.value})", flush=True)
        for test, reason in reasons.items():
            print(f"    {'NOT RED' if reason is None else 'red'}  {test}\n        {reason or ''}", flush=True)
        if None in reasons.values():
            unseen += 1
            print(done.output, flush=True)
    return 1 if unseen else 0


if __name__ == "__main__":
    sys.exit(main())
