"""The page of all tables is the one that the command prints for the jobs of this repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltaworks.cli import tables_page
from deltaworks.settings import Settings
from tests.docs.pages import DOCS, ROOT


def test_the_page_is_what_the_command_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELTAWORKS_PROJECT", str(ROOT))
    monkeypatch.setenv("DELTAWORKS_HOME", str(tmp_path / "home"))

    made = tables_page.page(tables_page.found(Settings.from_environment()))

    assert (DOCS / "tables/catalogue.md").read_text() == made, "`make docs-tables` writes it anew"
