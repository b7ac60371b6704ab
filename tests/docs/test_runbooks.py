"""Each kind of incident, each exit code and each task has its section in the runbooks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deltaworks import exits
from deltaworks.control.incidents import KINDS, anchor, runbook

PAGE = Path(__file__).parents[2] / "docs" / "runbooks.md"
TEXT = PAGE.read_text()
CODES = {name: value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}


def section(heading: str) -> str:
    """The text below a heading."""
    found = re.search(rf"^###? {re.escape(heading)}\n(.*?)(?=^##|\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found is not None, f"{PAGE.name} has no section {heading!r}"
    return found[1]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_incident_has_steps_under_its_title(kind: str) -> None:
    title = next(text.title for name, text in KINDS.items() if name == kind)

    assert "\n1. " in section(title)


@pytest.mark.parametrize("name", CODES)
def test_each_exit_code_has_a_section(name: str) -> None:
    assert section(f"Exit code {CODES[name]}").strip()


def test_the_notices_of_the_page_are_the_kinds_of_incidents() -> None:
    page = TEXT.partition("\n## Notices\n")[2].partition("\n## ")[0]

    assert sorted(re.findall(r"^### (.*)$", page, re.MULTILINE)) == sorted(text.title for text in KINDS.values())


def test_an_anchor_is_that_of_the_heading() -> None:
    assert anchor("Stream failed") == "stream-failed"
    assert runbook(None, "lagging") == "docs/runbooks.md#lagging"
    assert runbook("https://docs.example.com", "red-tasks") == "https://docs.example.com/runbooks.html#red-tasks"
