"""How topics, stores and tables of a test show themselves in a REPL and in a notebook: the first entries only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice
from typing import Any

from deltaworks.serdes import Serde, Windowed
from deltaworks.serdes.type_names import type_name

LIMIT = 20
"""Entries that are shown at most."""
_CELL_CHARACTERS = 100


def typed_name(name: str, key: Serde[Any], value: Serde[Any]) -> str:
    """Such as `TestKeyValueStore[str, int]`."""
    return f"{name}[{type_name(key.type)}, {type_name(value.type)}]"


def entries(pairs: Iterable[tuple[Any, Any]]) -> str:
    """The first entries of a store or table, such as `{'ann': 1, 'bob': 2}`."""
    return "{" + _joined(f"{_written(key)}: {_written(value)}" for key, value in pairs) + "}"


def items(values: Iterable[Any]) -> str:
    """The first items of a list."""
    return "[" + _joined(map(_written, values)) + "]"


def html_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """The first rows as an HTML table, escaped; no more rows are taken than one after those that are shown."""
    taken = list(islice(rows, LIMIT + 1))
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_short(str(cell)))}</td>" for cell in row) + "</tr>" for row in taken[:LIMIT]
    )
    more = f"<p>The first {LIMIT} rows are shown.</p>" if len(taken) > LIMIT else ""
    return f"<p>{escape(title)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _joined(texts: Iterable[str]) -> str:
    taken = list(islice(texts, LIMIT + 1))
    return ", ".join(taken[:LIMIT] + ["..."] * (len(taken) > LIMIT))


def _written(value: Any) -> str:
    return _short(str(value) if isinstance(value, Windowed) else repr(value))


def _short(text: str) -> str:
    return text if len(text) <= _CELL_CHARACTERS else text[: _CELL_CHARACTERS - 3] + "..."
