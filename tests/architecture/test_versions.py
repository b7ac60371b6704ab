"""What `make check-versions` tries: every range has two ends, and every row runs tests that exist."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.versions.rows import ROWS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def test_every_range_has_a_lower_and_an_upper_end() -> None:
    wanted = [*map(Requirement, PROJECT["dependencies"]), *(Requirement(each) for of in EXTRAS.values() for each in of)]
    ranges = {str(each): {part.operator for part in each.specifier} for each in wanted if each.name != "deltaworks"}

    assert len(ranges) > 20
    assert [each for each, operators in ranges.items() if operators != {">=", "<"}] == []


@pytest.mark.parametrize("name", ROWS)
def test_a_row_installs_extras_and_runs_tests_that_exist(name: str) -> None:
    row = ROWS[name]
    files = [each.removeprefix("--ignore=") for each in row.tests]

    assert set(row.extras) <= EXTRAS.keys()
    assert [each for each in files if not (ROOT / each).exists()] == []
