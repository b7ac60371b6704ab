"""The type that a lambda probably returns, for the example in an error. Never used to decide anything."""

from __future__ import annotations

import ast
import builtins
import linecache
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any, get_type_hints

from deltaworks.serdes.inference import returned


def likely_result(function: Any, takes: Sequence[Any] = ()) -> Any:
    """The type of a lambda's result, as far as its text says it; None if it does not, or if there is no text.

    Args:
        takes: the types of its parameters, where they are known.
    """
    body = _body(function) if isinstance(function, FunctionType) else None
    if body is None:
        return None
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    types = dict(zip(names, takes, strict=True)) if len(names) == len(takes) else dict.fromkeys(names)
    return _type(body, types, {**vars(builtins), **function.__globals__})


def _body(function: FunctionType) -> ast.expr | None:
    code = function.__code__
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    except SyntaxError:
        return None
    places = {(line, column) for line, _, column, _ in code.co_positions()}
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno:
            inside = {(each.lineno, each.col_offset) for each in ast.walk(node.body) if isinstance(each, ast.expr)}
            if (node.body.lineno, node.body.col_offset) in places and inside & places:
                return node.body
    return None


def _type(node: ast.expr, types: Mapping[str, Any], names: Mapping[str, Any]) -> Any:
    """The type of an expression; None if it is not clear."""
    match node:
        case ast.Constant(value):
            return type(value)
        case ast.JoinedStr():
            return str
        case ast.Compare() | ast.UnaryOp(op=ast.Not()):
            return bool
        case ast.Name(name):
            return types.get(name)
        case ast.Attribute(owner, name):
            return _field(_type(owner, types, names), name)
        case ast.Call(ast.Name(name)) if name in names:
            return returned(names[name]) or None
        case ast.Call(ast.Attribute(owner, name)):
            method = getattr(_type(owner, types, names), name, None)
            return (returned(method) or None) if method else None
        case ast.Tuple(elements):
            parts = [_type(each, types, names) for each in elements]
            return tuple[tuple(parts)] if all(parts) else None  # type: ignore[misc]
        case ast.List([first, *_]) | ast.ListComp(first):
            inner = _type(first, types, names)
            return list[inner] if inner else None  # type: ignore[valid-type]
        case ast.BinOp(left, ast.Add() | ast.Sub() | ast.Mult(), right):
            one, other = _type(left, types, names), _type(right, types, names)
            return one if one == other else None
        case _:
            return None


def _field(owner: Any, name: str) -> Any:
    try:
        return get_type_hints(owner).get(name)
    except (TypeError, NameError):
        return None
