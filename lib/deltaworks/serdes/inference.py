"""The serde for a Python type, so that a pipeline need not declare the same thing twice."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from deltaworks.serdes.base import Serde
from deltaworks.serdes.json import Json
from deltaworks.serdes.primitives import Bytes, Double, Long, String
from deltaworks.serdes.scalars import Uuid
from deltaworks.serdes.windowed import Windowed

_PRIMITIVES: dict[Any, Serde[Any]] = {str: String(), int: Long(), float: Double(), bytes: Bytes(), UUID: Uuid()}


def serde_for(type: Any) -> Serde[Any] | None:
    """`String` for `str`, `Long` for `int`, `Double` for `float`, `Bytes` for `bytes`, `Uuid` for `UUID`; `Json` for
    other types that JSON can hold: dataclasses, Structs, lists, `bool`, `Decimal`, `datetime`.

    None if the type says too little (`Any`, `object`, a type variable), or if JSON cannot hold it.

    >>> serde_for(int | None)
    Long()
    """
    type = without_none(type)
    if type in _PRIMITIVES:
        return _PRIMITIVES[type]
    if type in (Any, object, None, types.NoneType, inspect.Parameter.empty) or isinstance(type, TypeVar):
        return None
    if (get_origin(type) or type) is Windowed:
        return None
    try:
        return Json(type)
    except TypeError:
        return None


def returned(function: Callable[..., Any]) -> Any:
    """The type that a function says it returns; a class returns itself. None if it does not say."""
    if inspect.isclass(function):
        return function
    while isinstance(function, functools.partial):
        function = function.func
    call = function if inspect.isroutine(function) else type(function).__call__
    try:
        return get_type_hints(call).get("return")
    except (NameError, TypeError, AttributeError):
        return None


def element(series: Any) -> Any:
    """`T` of `Iterable[T]`, `list[T]`, `Generator[T]`...; None if it does not say."""
    args = get_args(series)
    return args[0] if args and get_origin(series) is not Union else None


def pair(type: Any) -> tuple[Any, Any]:
    """`(K, V)` of `tuple[K, V]`; Nones if it does not say."""
    args = get_args(type)
    return (args[0], args[1]) if get_origin(type) is tuple and len(args) == 2 else (None, None)


def without_none(type: Any) -> Any:
    """`X` of `X | None`, of `Annotated[X, ...]` and of a `NewType` over `X`."""
    while True:
        if get_origin(type) is Annotated:
            type = get_args(type)[0]
        elif hasattr(type, "__supertype__"):
            type = type.__supertype__
        elif get_origin(type) in (Union, types.UnionType):
            rest = [part for part in get_args(type) if part is not types.NoneType]
            if len(rest) != 1:
                return type
            type = rest[0]
        else:
            return type
