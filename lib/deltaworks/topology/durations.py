"""Durations: users give a `timedelta`, the code inside works with whole milliseconds."""

from __future__ import annotations

from datetime import timedelta

_MILLISECOND = timedelta(milliseconds=1)
_UNITS = ("days", "hours", "minutes", "seconds", "milliseconds", "microseconds")


def milliseconds(duration: timedelta, what: str) -> int:
    """A duration in whole milliseconds.

    Args:
        duration: as the user gave it.
        what: what it is, for the message.

    Raises:
        TypeError: it is a number, as in Kafka Streams' configuration.
        ValueError: it is finer than a millisecond.
    """
    if not isinstance(duration, timedelta):
        raise TypeError(wrong_duration(duration, what))
    if duration % _MILLISECOND:
        raise ValueError(f"{what} must be whole milliseconds, not {duration}")
    return duration // _MILLISECOND


def wrong_duration(given: object, what: str) -> str:
    """The message for a value that is not a `timedelta`."""
    number = isinstance(given, int | float)
    example = f"timedelta(milliseconds={given})" if number else "timedelta(minutes=5)"
    return f"{what} must be a timedelta, such as {example}, not {given!r}"


def as_code(duration: timedelta) -> str:
    """A duration as one writes it, in the largest unit that has a whole number of it.

    >>> as_code(timedelta(seconds=300)), as_code(timedelta(0))
    ('timedelta(minutes=5)', 'timedelta(0)')
    """
    if not duration:
        return "timedelta(0)"
    unit = next(unit for unit in _UNITS if not duration % timedelta(**{unit: 1}))
    return f"timedelta({unit}={duration // timedelta(**{unit: 1})})"
