"""Every snippet on the pages runs and prints what the page shows; every command exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs import pictures
from tests.docs.pages import Block, blocks, commands, pages, problem, run


def name(page: Path) -> str:
    return page.stem


@pytest.mark.parametrize("page", pages(), ids=name)
def test_code_runs_and_prints_what_the_page_shows(page: Path) -> None:
    for block, printed in run(page):
        shown = "" if block.shows is None else block.shows.code
        assert printed == shown, f"{page}:{block.line}; `python -m tests.docs {page}` writes it"


@pytest.mark.parametrize("picture", pictures.PICTURES)
def test_pictures_show_what_the_tables_have(picture: str) -> None:
    assert pictures.path(picture).read_text() == pictures.PICTURES[picture](), (
        "`python -m tests.docs.pictures` draws it"
    )


@pytest.mark.parametrize("page", pages(), ids=name)
def test_commands_exist(page: Path) -> None:
    found = [
        command for block in blocks(page.read_text()) if block.language == "console" for command in commands(block)
    ]
    assert [wrong for command in found if (wrong := problem(command)) is not None] == []


@pytest.mark.parametrize(
    "command", ["deltaworks depoly orders", "deltaworks replay --frm 2026-03-02", "make demonstration"]
)
def test_a_command_that_does_not_exist_is_found(command: str) -> None:
    assert problem(command) is not None


def test_blocks_are_found_with_what_they_show() -> None:
    text = "# A\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n\nand\n\n```sql\nSELECT 1\n```\n"
    found = blocks(text)
    assert [(block.language, block.line, isinstance(block.shows, Block)) for block in found] == [
        ("python", 4, True),
        ("sql", 14, False),
    ]
