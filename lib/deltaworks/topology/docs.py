"""What the fields of a type mean, in the author's words: `Annotated[..., Doc("...")]`, or a text below the field.

Python keeps no texts below fields, so they are read from the source of the class, if there is one.
"""

from __future__ import annotations

import ast
import inspect
import sys
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Union


@dataclass(frozen=True)
class Doc:
    """What a field or a value means: `amount: Annotated[Decimal, Doc("Price in euros, with taxes")]`.

    It becomes the comment of the column in Delta tables. `typing_extensions.Doc` is understood, too.

    Args:
        documentation: The meaning, in one sentence.
    """

    documentation: str


@dataclass(frozen=True)
class Column:
    """A column of a Delta table: `to_delta("revenue", key=Column("user_id", "The user who paid"), ...)`.

    Args:
        name: Its name.
        doc: What it means, in one sentence; None: what its type says.
        type: Its type, such as `Annotated[Decimal, DecimalDigits(18, 2)]`; None: that of the key or value.
    """

    name: str
    doc: str | None = None
    type: Any = None


def doc_of(kind: Any) -> str | None:
    """The `Doc` of a type; None: it has none."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        docs = [text for extra in arguments[1:] if isinstance(text := getattr(extra, "documentation", None), str)]
        return docs[0] if docs else doc_of(arguments[0])
    if origin in (Union, types.UnionType):
        return next(filter(None, map(doc_of, arguments)), None)
    return None


def texts_below(kind: type) -> dict[str, str]:
    """The texts below the fields of a Struct, dataclass or NamedTuple, as far as their sources are at hand."""
    own = {name: text for each in reversed(kind.__mro__) for name, text in _own_texts(each).items()}
    return {name: text for name, text in own.items() if text}


def _own_texts(kind: type) -> dict[str, str]:
    """The texts below the fields that a class itself declares; "" for a field without one, which hides a base's."""
    module = _source(kind.__module__)
    body = None if module is None else _body(module, kind.__qualname__.split("."))
    found = {} if body is None else dict(_fields(body))
    return found if found.keys() == inspect.get_annotations(kind).keys() else {}  # else it is of another class


def _fields(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for statement, below in zip(body, [*body[1:], ast.Pass()], strict=True):
        match statement, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, " ".join(text.split())
            case ast.AnnAssign(target=ast.Name(id=name)), _:
                yield name, ""


def _source(module: str) -> ast.Module | None:
    try:
        return _parsed(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError, SyntaxError, ValueError):
        return None  # a shell, a compiled module, a class that was sent from another process


@lru_cache(maxsize=16)
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def _body(tree: ast.AST, path: list[str]) -> list[ast.stmt] | None:
    """The statements of a class; `path` is its qualified name."""
    first, *rest = path
    if first == "<locals>":
        return _body(tree, rest)
    for node in _nearest(tree):
        if node.name == first:
            found = node.body if not rest and isinstance(node, ast.ClassDef) else _body(node, rest) if rest else None
            if found is not None:
                return found
    return None


def _nearest(tree: ast.AST) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Classes and functions inside, but not those inside of them; also below `if`, `try` and `with`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        else:
            yield from _nearest(node)
