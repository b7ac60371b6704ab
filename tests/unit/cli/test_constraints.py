from __future__ import annotations

import re
from pathlib import Path

from packaging.requirements import Requirement
from typer.testing import CliRunner

from deltaworks.cli.app import app

run = CliRunner().invoke
LOCK = Path(__file__).parents[3] / "infra" / "runtime-constraints.txt"


def test_constraints_are_the_versions_of_the_lock_without_hashes() -> None:
    printed = [Requirement(line) for line in run(app, ["constraints"]).stdout.splitlines()]

    assert [f"{each.name}{each.specifier}" for each in printed] == re.findall(
        r"^([a-z0-9][\w.-]*==[^ \\\n]+)", LOCK.read_text(), re.MULTILINE
    )
    assert {str(each.marker) for each in printed if each.name == "numpy"} == {
        'python_full_version < "3.12"',
        'python_full_version >= "3.12"',
    }


def test_with_hashes_it_is_the_lock_to_the_letter() -> None:
    assert run(app, ["constraints", "--hashes"]).stdout == LOCK.read_text()
