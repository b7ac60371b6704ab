"""Checks what an author says about incidents."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from deltaworks.dsl.mistakes import named
from deltaworks.errors import Problem
from deltaworks.topology.alerts import Alerts


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
