"""From when on the state of a stream is an incident, of which somebody is told."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


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
