"""The thresholds of a pipeline."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from deltaworks import Alerts, Pipeline, StreamsBuilder, TopologyError
from deltaworks.control.heartbeat import Heartbeat


def topology(builder: StreamsBuilder) -> None:
    builder.stream("words", key=str, value=str).to("copies")


@pytest.mark.parametrize(
    "alerts",
    [
        {"lag": timedelta(0)},
        {"lag": 60},
        {"batch": -timedelta(minutes=1)},
        {"dead_letters": 0},
        {"dead_letters": True},
        {"dead_letters": 1.5},
        {"state_growth": 1},
        {"state_growth": float("inf")},
        {"state_growth": "2"},
    ],
)
def test_a_threshold_that_makes_no_sense_is_a_problem_that_names_it(alerts: dict[str, Any]) -> None:
    [name] = alerts

    with pytest.raises(TopologyError, match=rf"alerts= has {name}=.*\n.*None for never"):
        Pipeline(name="p", topology=topology, alerts=Alerts(**alerts)).plan()


def test_something_else_is_a_problem() -> None:
    wrong: Any = {"lag": 5}

    with pytest.raises(TopologyError, match=r"alerts= is .*, not Alerts"):
        Pipeline(name="p", topology=topology, alerts=wrong).plan()


def test_thresholds_may_be_left_out() -> None:
    none = Alerts(lag=None, batch=None, dead_letters=None, state_growth=None)

    Pipeline(name="p", topology=topology, alerts=none).plan()


def test_a_heartbeat_has_them() -> None:
    beat = Heartbeat(
        pipeline="p",
        generation=1,
        query_id="q",
        state="running",
        pid=1,
        at=1.0,
        alerts=Alerts(lag=timedelta(minutes=5), dead_letters=None, state_growth=1.5),
    )

    assert msgspec.json.decode(msgspec.json.encode(beat), type=Heartbeat) == beat
    assert msgspec.convert(msgspec.to_builtins(beat), Heartbeat) == beat
