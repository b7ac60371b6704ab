"""Tries the versions that `pyproject.toml` allows: `python -m tests.versions [ROW ...]`.

The wheel is installed into one environment per row, and the tests run against it. What failed stays in build/versions.
"""

from __future__ import annotations

import argparse
import platform
import re
import sys
import tempfile
import time
from pathlib import Path

from tests.versions.environment import ROOT, Failed, build, environment
from tests.versions.rows import ROWS

_SHOWN = ("pyspark", "apache-airflow", "pandas", "great-expectations", "deltalake", "confluent-kafka")
_FOLDER = ROOT / "build" / "versions"
_TAIL = 60
"""Lines that are shown of pytest where something fails."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=__doc__)
    parser.add_argument("row", nargs="*", metavar="ROW", help=f"{', '.join(ROWS)}; default: all")
    names = parser.parse_args().row or list(ROWS)
    if unknown := [name for name in names if name not in ROWS]:
        parser.error(f"there is no row {', '.join(unknown)}; there are {', '.join(ROWS)}")
    begun = time.monotonic()
    print(_line("row", "python", *_SHOWN) + f"{'passed':>8}{'skipped':>9}{'seconds':>9}")
    with tempfile.TemporaryDirectory(prefix="deltaworks-wheel-") as folder:
        wheel = build(Path(folder))
        failed = [name for name in names if not _holds(name, wheel)]
    print(f"{len(names)} rows, {len(failed)} failed, {time.monotonic() - begun:.0f} s")
    return min(len(failed), 1)


def _holds(name: str, wheel: Path) -> bool:
    """Whether all tests of a row pass; prints its line."""
    row, begun = ROWS[name], time.monotonic()
    try:
        with environment(_FOLDER / name, row, wheel) as made:
            versions = made.versions()
            shown = (versions.get(package, "-") for package in _SHOWN)
            print(_line(name, platform.python_version(), *shown), end="", flush=True)
            done = made.pytest(row.tests)
            counts = {what: int(number) for number, what in re.findall(r"(\d+) (passed|skipped)", done.stdout[-200:])}
            numbers = (counts.get("passed", 0), counts.get("skipped", 0), round(time.monotonic() - begun))
            print(f"{numbers[0]:>8}{numbers[1]:>9}{numbers[2]:>9}", flush=True)
            if done.returncode != 0:
                raise Failed("\n".join(done.stdout.splitlines()[-_TAIL:]))
    except Failed as error:
        print(f"{name} failed:\n{error}", flush=True)
        return False
    return True


def _line(name: str, *versions: str) -> str:
    widths = (9, *(max(len(package), 8) + 2 for package in _SHOWN))
    return f"{name:<15}" + "".join(f"{version:<{width}}" for version, width in zip(versions, widths, strict=True))


if __name__ == "__main__":
    sys.exit(main())
