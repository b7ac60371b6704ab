"""How a Python type is written in messages and displays: `Order`, `Windowed[str]`, `Song | None`."""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin


def type_name(kind: Any) -> str:
    """The name of a type as an author writes it; `?` if the type is unknown.

    >>> type_name(dict[str, list[int | None]])
    'dict[str, list[int | None]]'
    """
    if kind is None:
        return "?"
    if kind is types.NoneType:
        return "None"
    if kind is Ellipsis:
        return "..."
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return type_name(arguments[0])
    if origin in (Union, types.UnionType):
        return " | ".join(map(type_name, arguments))
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if isinstance(kind, list):  # the arguments of a Callable
        return f"[{', '.join(map(type_name, kind))}]"
    if arguments:
        return f"{type_name(origin)}[{', '.join(map(type_name, arguments))}]"
    return str(getattr(kind, "__name__", kind))
