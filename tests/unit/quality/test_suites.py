from __future__ import annotations

from pathlib import Path

import pytest

from deltaworks.errors import ConfigurationError
from deltaworks.quality import suites
from deltaworks.settings import Settings


def test_a_suite_is_a_module_of_the_project(project: Path) -> None:
    settings = Settings.from_environment()

    assert {table: len(suite) for table, suite in suites.load(settings, "parcels").items()} == {"parcels": 2}


def test_a_module_without_suites_says_what_is_missing(project: Path) -> None:
    (project / "jobs/quality/letters.py").write_text("suite = 1\n")

    with pytest.raises(ConfigurationError, match="defines no suites"):
        suites.load(Settings.from_environment(), "letters")
