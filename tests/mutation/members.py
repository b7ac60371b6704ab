"""A mutation of one public member: it is out of service for a moment, so the test that proves it must fail.

What is left does nothing, quietly where it can: an operator that returns a handle of its own class returns the one it
was called on, one without a result returns None, an argument is ignored, a constant is another one of its class. All
else raises `OutOfService`. Of a protocol, everything that implements it is out of service; of a class that users derive
from, what they wrote.
"""

from __future__ import annotations

import enum
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec

from tests.coverage_table.counterparts import Counterpart

_MISSING = object()


class OutOfService(Exception):
    """Something was used that is out of service."""


@contextmanager
def mutated(counterpart: Counterpart) -> Iterator[None]:
    """Without `counterpart`, within this block."""
    owner, member = counterpart.owner, counterpart.member
    if not isinstance(owner, type):
        raise TypeError(f"{counterpart} is no class and no part of one, so it cannot be mutated")
    with ExitStack() as stack:
        if member is None and issubclass(owner, msgspec.Struct):
            for module in _modules("deltaworks", "tests"):
                for name in [name for name, value in vars(module).items() if value is owner]:
                    stack.enter_context(_replaced(module, name, _raising(str(counterpart))))
        else:
            member = member or "__init__"
            for each in _classes(owner, member):
                stack.enter_context(_replaced(each, member, _out_of_service(each, member, counterpart)))
        yield


@contextmanager
def _replaced(holder: Any, name: str, value: Any) -> Iterator[None]:
    # Enums refuse to be changed, so this goes around them.
    assign, delete = (type.__setattr__, type.__delattr__) if isinstance(holder, type) else (setattr, delattr)
    original = vars(holder).get(name, _MISSING)
    assign(holder, name, value)
    try:
        yield
    finally:
        if original is _MISSING:
            delete(holder, name)
        else:
            assign(holder, name, original)


def _classes(owner: type, member: str) -> list[type]:
    found = [owner]
    if member == "__init__":
        return found
    if getattr(owner, "_is_protocol", False):
        found += [each for each in _all_classes() if _implements(each, owner)]
    derived = [below for each in found for below in _below(each) if member in vars(below)]
    return list(dict.fromkeys([*found, *derived]))


def _below(owner: type) -> Iterator[type]:
    derived: list[type] = type.__subclasses__(owner)
    for each in derived:
        yield each
        yield from _below(each)


def _implements(each: type, protocol: type) -> bool:
    """Has all its methods, with the same parameters."""
    members = {name for base in protocol.__mro__ for name in vars(base) if not name.startswith("_")}
    return (
        each is not protocol
        and not getattr(each, "_is_protocol", False)
        and all(_parameters(each, member) == _parameters(protocol, member) for member in members)
    )


def _parameters(owner: type, member: str) -> list[str] | None:
    """None: there is no such method."""
    found = inspect.getattr_static(owner, member, None)
    if isinstance(found, property):
        return []
    return [*inspect.signature(found).parameters] if inspect.isfunction(found) else None


def _all_classes() -> Iterator[type]:
    for module in _modules("deltaworks", "tests"):
        for value in vars(module).values():
            if isinstance(value, type) and value.__module__ == module.__name__:
                yield value


def _modules(*packages: str) -> list[Any]:
    return [module for name, module in [*sys.modules.items()] if name.partition(".")[0] in packages and module]


def _out_of_service(owner: type, member: str, counterpart: Counterpart) -> Any:
    original = inspect.getattr_static(owner, member, None)
    called = original.__func__ if isinstance(original, classmethod | staticmethod) else original
    if counterpart.argument is not None:
        return _like(original, _ignoring(called, counterpart.argument))
    if issubclass(owner, enum.Enum) and isinstance(original, owner):
        return next(other for other in owner if other is not original)
    if inspect.isroutine(original):
        return _like(original, _inert(called, owner, str(counterpart)))
    return property(_raising(str(counterpart)), lambda *_: None)


def _like(original: Any, function: Callable[..., Any]) -> Any:
    """As a class method or a static one if the original is."""
    kind = type(original)
    return kind(function) if kind in (classmethod, staticmethod) else function


def _ignoring(function: Any, argument: str) -> Callable[..., Any]:
    signature = inspect.signature(function)
    parameter = signature.parameters[argument]
    optional = parameter.default is not parameter.empty or parameter.kind is parameter.VAR_POSITIONAL

    @functools.wraps(function)
    def without(*args: Any, **options: Any) -> Any:
        bound = signature.bind(*args, **options)
        if bound.arguments.pop(argument, _MISSING) is not _MISSING and not optional:
            raise OutOfService(argument)
        return function(*bound.args, **bound.kwargs)

    return without


def _inert(function: Any, owner: type, name: str) -> Callable[..., Any]:
    returns = str(getattr(function, "__annotations__", {}).get("return", ""))
    if returns == "None" and function.__name__ != "__init__":
        return lambda *_, **__: None
    is_method = next(iter(inspect.signature(function).parameters), "") == "self"
    if is_method and returns.partition("[")[0] in (owner.__name__, "Self"):
        return lambda self, *_, **__: self
    return _raising(name)


def _raising(name: str) -> Callable[..., Any]:
    def out_of_service(*_: Any, **__: Any) -> Any:
        raise OutOfService(name)

    return out_of_service
