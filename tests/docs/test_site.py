"""The site builds without a warning, links to nothing that is missing, and loads nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import deltaworks
from tests.docs.pages import ROOT
from tooling import docs_doctests, docs_site


def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert built.returncode == 0, built.stderr
    index = (tmp_path / "index.html").read_text()
    loaded = re.findall(r'<(?:script|img)[^>]* src="([^"]+)"|<link[^>]* href="([^"]+)"', index)
    assert [url for pair in loaded for url in pair if url.startswith(("http", "//"))] == []
    api = (tmp_path / "reference/api/streams.html").read_text()
    assert "KStream" in api and "group_by_key" in api


def test_every_public_name_is_on_one_page() -> None:
    documented = [name for _, _, names in docs_site.API.values() for name in names]
    assert sorted(documented) == sorted(deltaworks.__all__)


def test_settings_and_commands_are_described() -> None:
    settings, commands = docs_site.settings_page(), docs_site.commands_page()
    assert "| `DELTAWORKS_BOOTSTRAP` | `bootstrap` | `127.0.0.1:19092` |" in settings
    assert "## `deltaworks tables repair`" in commands and "| `--from` |" in commands
    assert "75 conflict" in commands
    assert [line for line in settings.splitlines() if line.endswith("|  |")] == [], "a setting without a meaning"


def test_a_link_out_of_the_pages_becomes_a_name_and_must_exist() -> None:
    text = docs_site.without_outside_links("see [the job](../jobs/orders.py) and [a](replay.md)", "operations.md")
    assert text == "see the job (`jobs/orders.py`) and [a](replay.md)"
    with pytest.raises(ValueError, match="leads nowhere"):
        docs_site.without_outside_links("[x](../jobs/none.py)", "operations.md")


def test_examples_of_docstrings_are_code() -> None:
    assert docs_doctests.fenced("A.\n\n>>> 1 + 1\n2\n\nB.") == "A.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nB."
