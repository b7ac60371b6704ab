"""Which tests `make check` leaves out: every pattern names a file, and what takes long without being marked is told."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

from tests.support.thorough import FILES, STAY, is_thorough, unmarked

ROOT = Path(__file__).parents[2]
CHECKED = ("architecture", "unit", "conformance", "coverage_table")
"""Folders of `make check`."""


def test_every_pattern_names_a_file_of_make_check() -> None:
    files = [
        file.relative_to(ROOT).as_posix() for each in CHECKED for file in (ROOT / "tests" / each).rglob("test_*.py")
    ]

    assert [pattern for pattern in FILES if not any(fnmatch(file, pattern) for file in files)] == []


def test_what_is_elsewhere_or_quick_is_not_thorough() -> None:
    assert is_thorough(ROOT / "tests/unit/control/test_code.py")
    assert not is_thorough(ROOT / "tests/unit/control/test_fence.py")
    assert not is_thorough(Path("/elsewhere/tests/unit/control/test_code.py"))


def test_what_stays_is_there_and_is_told_of_no_more() -> None:
    for name in STAY:
        file, _, test = name.partition("::")
        assert f"def {test}" in (ROOT / file).read_text() and not is_thorough(ROOT / file), name
    tests = {name: 3.5 for name in STAY if "::" in name}
    files = {f"{name}::test_it[{number}]": 0.5 for name in STAY if "::" not in name for number in range(13)}

    assert unmarked(tests | files) == []


def test_a_test_that_takes_long_is_told_and_so_is_a_file_of_many_that_do_not() -> None:
    many = {f"tests/unit/test_many.py::test_it[{number}]": 0.5 for number in range(13)}
    few = {f"tests/unit/test_few.py::test_it[{number}]": 0.5 for number in range(12)}

    assert unmarked({"tests/unit/test_one.py::test_it": 3.5, **many, **few}) == [
        "  6.5 s  tests/unit/test_many.py, without tests above",
        "  3.5 s  tests/unit/test_one.py::test_it",
    ]
