"""Who asks what time it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "lib" / "deltaworks"
ASKING = {
    "time": ("time", "time_ns", "clock_gettime", "clock_gettime_ns", "gmtime", "localtime", "ctime", "asctime"),
    "datetime": ("now", "utcnow", "today"),
    "date": ("today",),
}
TICKING = ("monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")


def test_only_the_clock_asks_what_time_it_is() -> None:
    found = [
        f"{file.relative_to(PACKAGE)}:{line}"
        for file in sorted(PACKAGE.rglob("*.py"))
        if file != PACKAGE / "clock.py"
        for line in questions(ast.parse(file.read_text()))
    ]

    assert found == [], "ask deltaworks.clock instead: wall_ms for people and records, ticks_s for how long"


def test_every_way_to_ask_is_seen() -> None:
    asked = "import time, datetime\ntime.time()\ntime.monotonic()\ndatetime.now(UTC)\ndatetime.datetime.utcnow()\n"

    assert sorted(questions(ast.parse(asked + "from time import sleep, time_ns\ntime.sleep(1)"))) == [2, 3, 4, 5, 6]


def questions(module: ast.Module) -> Iterator[int]:
    """Lines that ask the operating system for the time."""
    for node in ast.walk(module):
        match node:
            case ast.Attribute(value=ast.Name(id=owner) | ast.Attribute(attr=owner), attr=name) if owner in ASKING:
                if name in ASKING[owner] or (owner == "time" and name in TICKING):
                    yield node.lineno
            case ast.ImportFrom(module="time", names=names):
                if any(each.name in (*ASKING["time"], *TICKING) for each in names):
                    yield node.lineno
