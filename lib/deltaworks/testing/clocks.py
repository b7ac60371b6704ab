"""Instants: a test gives a `datetime` with a time zone, the clocks of the driver count milliseconds since the epoch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_MILLISECOND = timedelta(milliseconds=1)

EPOCH = datetime.fromtimestamp(0, UTC)
"""Where every clock of a test starts unless the test sets it: 1970-01-01 in UTC."""


def instant_ms(instant: datetime, what: str) -> int:
    """Milliseconds from the epoch to an instant.

    Args:
        instant: As the test gave it.
        what: What it is, for the message.

    Raises:
        TypeError: It is not a `datetime`.
        ValueError: It has no time zone.
    """
    if not isinstance(instant, datetime):
        raise TypeError(f"{what} must be a datetime, such as datetime(2026, 1, 31, 9, 30, tzinfo=UTC), not {instant!r}")
    if instant.tzinfo is None:
        raise ValueError(f"{what} must have a time zone, {instant} has none: datetime(..., tzinfo=UTC)")
    return (instant - EPOCH) // _MILLISECOND


def instant_at(time_ms: int) -> datetime:
    """The instant that is so many milliseconds after the epoch, in UTC."""
    return EPOCH + time_ms * _MILLISECOND
