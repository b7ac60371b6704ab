"""What the query string of a request may say."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from deltaworks.errors import StoreQueryError
from deltaworks.names import hint_of


@dataclass(frozen=True)
class Parameter:
    """A parameter of the query string."""

    name: str
    about: str
    type: Literal["string", "integer", "boolean", "time"] = "string"
    default: Any = None
    most: int | None = None
    """The largest integer."""
    least: int = 0

    def read(self, text: str) -> Any:
        """Its value.

        Raises:
            StoreQueryError: the text is none.
        """
        match self.type:
            case "string":
                return text
            case "boolean":
                if text in ("true", "false"):
                    return text == "true"
                raise self._wrong(text, "true or false")
            case "time":
                return self._time(text)
            case "integer":
                most = "" if self.most is None else f" to {self.most:,}"
                if text.isascii() and text.isdecimal() and self.least <= int(text) <= (self.most or int(text)):
                    return int(text)
                raise self._wrong(text, f"a number from {self.least}{most}")

    def _time(self, text: str) -> int:
        if text.isascii() and text.isdecimal():
            return int(text)
        try:
            moment = datetime.datetime.fromisoformat(text)
        except ValueError:
            raise self._wrong(text, "milliseconds since 1970, or a time such as 2026-11-29T12:00:00Z") from None
        if moment.tzinfo is None:
            raise self._wrong(text, "a time with a time zone, such as 2026-11-29T12:00:00Z")
        return round(moment.timestamp() * 1000)

    def _wrong(self, text: str, expected: str) -> StoreQueryError:
        return StoreQueryError(f"{self.name}={text!r} is not what this parameter takes.", hint=f"give {expected}")


def read(parameters: Sequence[Parameter], given: Mapping[str, str]) -> dict[str, Any]:
    """The values of all parameters, by name.

    Args:
        parameters: those that the request may have.
        given: the query string.

    Raises:
        StoreQueryError: it has another one, or a value is wrong.
    """
    found = {parameter.name: parameter.default for parameter in parameters}
    for name in given:
        if name not in found:
            raise StoreQueryError(f"There is no parameter {name!r} here.", hint=hint_of(name, found, "parameters"))
    return found | {
        parameter.name: parameter.read(given[parameter.name]) for parameter in parameters if parameter.name in given
    }
