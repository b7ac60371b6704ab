"""What `docs/tables/query.md` has: a snippet per tool, all for the same question, and queries in plain SQL."""

from __future__ import annotations

import re
import shlex
from functools import cache
from typing import Any

from tests.docs.pages import DOCS, Block, blocks, commands
from tests.support.running_orders import Rows, as_rows

PAGE = DOCS / "tables" / "query.md"


@cache
def page() -> tuple[Block, ...]:
    """The blocks of the page."""
    return tuple(blocks(PAGE.read_text()))


def programs(language: str) -> dict[str, Block]:
    """Snippets by the package that they read with."""
    names = {name: block for block in page() if block.language == language for name in _reads_with(block)}
    assert len(names) == sum(block.language == language for block in page())
    return names


def queries() -> list[str]:
    """The queries in SQL."""
    return [block.code for block in page() if block.language == "sql"]


def command(option: str = "") -> list[str]:
    """The arguments of `deltaworks sql`: the first command of the page, or the first one with an option."""
    found = [shlex.split(each) for block in page() if block.language == "console" for each in commands(block)]
    return next(words[1:] for words in found if words[1] == "sql" and (not option or option in words))


def question() -> str:
    """The query that all snippets answer."""
    return command()[-1]


def answer_of(snippet: Block) -> Rows:
    """Runs a snippet, and gives its variable `answer`."""
    variables: dict[str, Any] = {"__name__": "snippet"}
    exec(compile(snippet.code, str(PAGE), "exec"), variables)
    return _rows(variables["answer"])


def _rows(answer: Any) -> Rows:
    match type(answer).__module__.partition(".")[0]:
        case "duckdb" | "_duckdb":
            return as_rows(answer.fetchall())
        case "polars":
            return as_rows(answer.rows())
        case "pandas":
            return as_rows(answer.values.tolist())
        case "pyspark":
            return as_rows(answer.collect())
        case package:
            raise AssertionError(f"an answer of {package}")


def _reads_with(block: Block) -> list[str]:
    modules = re.findall(r"^(?:import|from) (duckdb|polars|pyspark)", block.code, re.MULTILINE)
    return modules or ["pandas"] * ("to_pandas" in block.code)
