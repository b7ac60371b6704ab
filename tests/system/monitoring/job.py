"""Pipelines that do what their records say, so that each reason of an alert can be caused.

`fail` makes a record a dead letter, `sleep 14` makes its batch last that long. Anything else is counted.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta

from deltaworks import Alerts, DeadLetters, Pipeline, StreamsBuilder, TimeWindows, Topic

FAIL = "fail"
_MINUTE = timedelta(minutes=1)
_OF: Mapping[str, Alerts] = {
    # a batch of some seconds is lag, and one that is stuck
    "watched": Alerts(lag=timedelta(seconds=8), batch=timedelta(seconds=10), dead_letters=1, state_growth=None),
    # lag may grow by a quarter of this, for a while, before it is too much
    "grown": Alerts(lag=timedelta(seconds=40), batch=None, dead_letters=None, state_growth=2.0),
}
NAMES = tuple(_OF)


def sleep(seconds: float) -> str:
    """The value that makes a batch last so long."""
    return f"sleep {seconds:g}"


def obey(value: str) -> str:
    """Does what a record says."""
    if value == FAIL:
        raise ValueError("as the record says")
    word, _, seconds = value.partition(" ")
    if word == "sleep":
        time.sleep(float(seconds))
    return value


def made(name: str) -> Pipeline:
    """The pipeline of a name: it counts the records of the topic `name` by key, in all and per minute."""

    def topology(builder: StreamsBuilder) -> None:
        words = builder.stream(name, key=str, value=str).map_values(obey, name="obey").group_by_key()
        words.count(store=counts(name)).to_delta(f"{name}_counts", key="word", value="number")
        words.windowed_by(TimeWindows(size=_MINUTE, grace=_MINUTE)).count(store=f"{name}-minutes")

    return Pipeline(
        name=name,
        topology=topology,
        topics=(Topic(name, partitions=2),),
        on_error="continue",
        dead_letters=DeadLetters(topic=letters(name), table=f"{name}_dead_letters"),
        alerts=_OF[name],
    )


def counts(name: str) -> str:
    """The store with an entry per key."""
    return f"{name}-counts"


def letters(name: str) -> str:
    """The topic of dead letters."""
    return f"{name}-dead-letters"


def file_of(name: str) -> str:
    """What is in the project's `jobs/<name>.py`."""
    return f"from {__name__} import made\n\npipeline = made({name!r})\n"
