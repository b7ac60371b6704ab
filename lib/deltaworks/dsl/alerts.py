"""From when on the state of a stream is an incident, of which somebody is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from deltaworks.dsl.mistakes import named
from deltaworks.errors import Problem


@dataclass(frozen=True, kw_only=True)
class Alerts:
    """From when on a stream has an incident; None: never. That a stream has failed is always one.

    ```python
    Pipeline(..., alerts=Alerts(lag=timedelta(minutes=2), dead_letters=None))
    ```

    The thresholds of the code that runs hold: a change needs a deployment.
    """

    lag: timedelta | None = timedelta(minutes=15)
    """How far the stream may be behind its topics. The incident is over below half of it."""
    batch: timedelta | None = timedelta(minutes=15)
    """How long no batch may end while records wait."""
    dead_letters: int | None = 1
    """This many dead letters within an hour are an incident; it is over after an hour without any."""
    state_growth: float | None = 2.0
    """How many times as many entries the stores may have as a day before. Stores that have grown by fewer than 100,000
    entries are never an incident."""


USUAL = Alerts()


def problems(alerts: Any) -> Iterator[Problem]:
    """What is wrong with them."""
    if not isinstance(alerts, Alerts):
        yield Problem(f"alerts= is {named(alerts)}, not Alerts.", hint="alerts=Alerts(lag=timedelta(minutes=5))")
        return
    for name in ("lag", "batch"):
        limit: Any = getattr(alerts, name)
        if limit is not None and not (isinstance(limit, timedelta) and limit > timedelta(0)):
            yield Problem(f"alerts= has {name}={limit!r}.", hint=f"{name}=timedelta(minutes=5), or None for never")
    letters: Any = alerts.dead_letters
    if letters is not None and not (_is_number(letters, int) and letters >= 1):
        yield Problem(f"alerts= has dead_letters={letters!r}.", hint="a whole number from 1, or None for never")
    growth: Any = alerts.state_growth
    if growth is not None and not (_is_number(growth, (int, float)) and 1 < growth < float("inf")):
        yield Problem(f"alerts= has state_growth={growth!r}.", hint="a number above 1, or None for never")


def _is_number(value: Any, kinds: type | tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)
