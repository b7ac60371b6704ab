"""Values that are made with keywords, such as windows. A wrong call, or a name of Kafka Streams, shows a right one."""

from __future__ import annotations

import inspect
import re
from abc import ABCMeta
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from deltaworks.topology.durations import as_code


class _Keywords(ABCMeta):
    """Checks calls of the class, and names that are looked up in it."""

    if not TYPE_CHECKING:

        def __call__(cls, *given: Any, **named: Any) -> Any:
            problem = _problem(cls, given, named)
            if problem is not None:
                raise TypeError(problem)
            return super().__call__(*given, **named)

        def __getattr__(cls, name: str) -> NoReturn:
            raise AttributeError(_missing(cls, name))

        @property
        def __signature__(cls) -> inspect.Signature:
            parameters = list(inspect.signature(cls.__init__).parameters.values())
            return inspect.Signature(parameters[1:])


class Keywords(metaclass=_Keywords):
    """Base of values that are made with keywords.

    A class that is final cannot be subclassed; the error says what to do instead.
    """

    _example: ClassVar[Mapping[str, str]] = {}
    """Argument -> its code in the shortest valid call."""
    _replaced: ClassVar[Mapping[str, str]] = {}
    """Name of Kafka Streams, in snake case -> the code that takes its place."""
    _instead_of_a_subclass: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for base in cls.__mro__[1:]:
            if base.__dict__.get("__final__") and issubclass(base, Keywords):
                raise TypeError(
                    f"{base.__name__} cannot be subclassed: what {cls.__name__} adds would be ignored."
                    f"\n    Hint: {base._instead_of_a_subclass.format(name=cls.__name__)}"
                )

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(_missing(type(self), name))


def call(name: str, arguments: Mapping[str, Any]) -> str:
    """A call with keywords, as code."""
    return f"{name}({', '.join(f'{argument}={_code(value)}' for argument, value in arguments.items())})"


def example(cls: type[Keywords]) -> str:
    """The shortest valid call."""
    return f"{cls.__name__}({', '.join(f'{argument}={code}' for argument, code in cls._example.items())})"


def _code(value: Any) -> str:
    match value:
        case timedelta():
            return as_code(value)
        case datetime() if value.tzinfo is UTC:
            return repr(value).removeprefix("datetime.").replace("datetime.timezone.utc", "UTC")
        case _:
            return repr(value)


def _problem(cls: type[Keywords], given: tuple[Any, ...], named: Mapping[str, Any]) -> str | None:
    """What is wrong with the arguments of a call."""
    name = cls.__name__
    parameters = list(inspect.signature(cls).parameters.values())
    if any(parameter.kind is not inspect.Parameter.KEYWORD_ONLY for parameter in parameters):
        return None  # an author's class that has another form
    if given:
        return f"{name} takes its arguments by keyword only.\n    Hint: {example(cls)}"
    unknown = [argument for argument in named if argument not in {parameter.name for parameter in parameters}]
    if unknown:
        takes = ", ".join(parameter.name for parameter in parameters) or "none"
        return f"{name} has no argument {unknown[0]!r}; it takes {takes}.\n    Hint: {example(cls)}"
    missing = [
        parameter.name
        for parameter in parameters
        if parameter.default is inspect.Parameter.empty and parameter.name not in named
    ]
    if missing == ["grace"]:
        none, some = (call(name, {**named, "grace": grace}) for grace in (timedelta(0), timedelta(minutes=1)))
        return (
            f"{name} needs grace: for how long, in stream time, records may be late."
            f"\n    Hint: {none} drops late records; {some} takes those that are up to a minute late"
        )
    return f"{name} needs {', '.join(missing)}.\n    Hint: {example(cls)}" if missing else None


def _missing(cls: type[Keywords], name: str) -> str:
    text = f"{cls.__name__} has no attribute {name!r}"
    if name.startswith("_"):
        return text
    instead = cls._replaced.get(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
    return f"{text}.\n    Hint: {instead}" if instead else text
