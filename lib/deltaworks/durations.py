"""Durations as people write them in settings: `90 minutes`, `3 hours`, `7 days`."""

from __future__ import annotations

from datetime import timedelta

from deltaworks.errors import ConfigurationError

_UNITS = {"minute": 60, "hour": 3600, "day": 86_400}


def parse(text: str, what: str) -> timedelta:
    """Reads a duration.

    Args:
        text: a whole number and a unit, such as `1 hour` or `90 minutes`.
        what: what it is for, as the beginning of a sentence.

    Raises:
        ConfigurationError: it is none.
    """
    number, _, unit = text.strip().partition(" ")
    seconds = _UNITS.get(unit.strip().removesuffix("s"))
    if not number.isdecimal() or seconds is None:
        raise ConfigurationError(f"{what} is no duration: {text!r}.", hint="such as 90 minutes, 3 hours or 7 days")
    return timedelta(seconds=int(number) * seconds)


def text(duration: timedelta) -> str:
    """The inverse of `parse`, in whole minutes."""
    seconds = round(duration / timedelta(minutes=1)) * 60
    unit = next(unit for unit in reversed(_UNITS) if seconds % _UNITS[unit] == 0)
    return f"{seconds // _UNITS[unit]} {unit}s"
