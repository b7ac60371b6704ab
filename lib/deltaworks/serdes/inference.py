"""The serde for a Python type, so that a pipeline need not declare the same thing twice."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from deltaworks.serdes.base import Serde
from deltaworks.serdes.builtin_results import builtin_result
from deltaworks.serdes.json import Json
from deltaworks.serdes.primitives import Bytes, Double, Long, String
from deltaworks.serdes.scalars import Uuid
from deltaworks.serdes.type_names import type_name
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
    if type is types.NoneType or is_open(type):
        return None
    if is_windowed(type) or isinstance(type, Untold):
        return None
    try:
        return Json(type)
    except TypeError:
        return None


@dataclass(frozen=True)
class Untold:
    """What a function returns that does not say so. It is false, so that `or` asks another function."""

    function: Callable[..., Any] | None
    why: str = "does not say what its function returns"
    part: Callable[[Any], Any] = lambda whole: whole
    """From the type of all that it returns to that of the part that is meant, such as the key of a pair."""

    def __bool__(self) -> bool:
        return False

    @property
    def annotatable(self) -> str | None:
        """The name of the function, if its author can write a return annotation; a lambda and a builtin take none."""
        name: str | None = getattr(self.function, "__name__", None)
        return name if isinstance(self.function, types.FunctionType) and name != "<lambda>" else None


def returned(function: Callable[..., Any]) -> Any:
    """The type that a function says it returns; a class returns itself. `Untold` if it does not say.

    >>> returned(str.split)
    list[str]
    """
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isclass(function):
        return function
    call = function if inspect.isroutine(function) else type(function).__call__
    try:
        return _annotated(call) or builtin_result(function) or Untold(function)
    except NameError as error:
        return Untold(function, f"has a function whose return annotation cannot be read: {error}")
    except (TypeError, AttributeError):
        return Untold(function)


def _annotated(function: Any) -> Any:
    """Reads only the return annotation: those of parameters may name what is imported for mypy alone."""
    function = inspect.unwrap(function)
    told = getattr(function, "__annotations__", {})
    if "return" not in told:
        return None
    only = types.SimpleNamespace(__annotations__={"return": told["return"]})
    return get_type_hints(only, globalns=getattr(function, "__globals__", {}))["return"]


def element(series: Any) -> Any:
    """`T` of `Iterable[T]`, `list[T]`, `Generator[T]`...; None if it does not say."""
    if isinstance(series, Untold):
        return replace(series, part=element)
    args = get_args(series)
    return args[0] if args and get_origin(series) is not Union else None


def pair(type: Any) -> tuple[Any, Any]:
    """`(K, V)` of `tuple[K, V]`; Nones if it does not say."""
    if isinstance(type, Untold):
        whole = type.part
        return replace(type, part=lambda told: pair(whole(told))[0]), replace(
            type, part=lambda told: pair(whole(told))[1]
        )
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


def contradicts(told: Any, given: Any) -> bool:
    """Whether no value can have both types: what a function says it returns, and what the user gives for it.

    >>> contradicts(str, int), contradicts(list[str], list), contradicts(int, float), contradicts(str | None, str)
    (True, False, False, False)
    """
    told, given = without_none(told), without_none(given)
    if isinstance(told, Untold) or any(is_open(each) for each in (told, given)):
        return False
    if any(get_origin(each) in (Union, types.UnionType) for each in (told, given)):
        return all(contradicts(one, other) for one in _members(told) for other in _members(given))
    one, other = get_origin(told) or told, get_origin(given) or given
    try:
        related = issubclass(one, other) or issubclass(other, one) or (one, other) == (int, float)
    except TypeError:
        # Literals, typed dicts and other types that are no classes.
        return False
    parts = zip(get_args(told), get_args(given), strict=False)
    return not related or (one is other and any(contradicts(*pair) for pair in parts))


def spelled(given: Any) -> str:
    """A type or serde as its user writes it, such as `Order`, `list[str]` or `Json(Order)`."""
    return type_name(given) if get_args(given) or isinstance(given, type) else repr(given)


def is_windowed(type: Any) -> bool:
    """Whether it is `Windowed` or `Windowed[K]`, which has a serde for each kind of windows."""
    return (get_origin(type) or type) is Windowed


def is_open(type: Any) -> bool:
    """Whether a type says nothing: `Any`, `object`, a type variable, or none at all."""
    return type in (Any, object, None, Ellipsis, inspect.Parameter.empty) or isinstance(type, TypeVar)


def _members(type: Any) -> tuple[Any, ...]:
    return get_args(type) if get_origin(type) in (Union, types.UnionType) else (type,)
