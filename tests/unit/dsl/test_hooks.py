"""What is called when a stream starts and ends."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from deltaworks import Pipeline, StreamsBuilder, StreamsError, TopologyError
from deltaworks.testing import TopologyTestDriver


def topology(builder: StreamsBuilder) -> None:
    builder.stream("in", key=str, value=int).map_values(lambda value: 1 // value, value=int).to("out")


class Calls(list[Any]):
    """The calls of both hooks."""

    def start(self) -> None:
        self.append("start")

    def stop(self, error: BaseException | None) -> None:
        self.append(error)

    def pipeline(self) -> Pipeline:
        return Pipeline(name="p", topology=topology, on_start=self.start, on_stop=self.stop)


def test_the_driver_calls_them_once_each() -> None:
    calls = Calls()

    driver = TopologyTestDriver(calls.pipeline())
    assert calls == ["start"]
    driver.create_input_topic("in").pipe_input("k", 1)
    assert calls == ["start"]
    driver.close()
    driver.close()

    assert calls == ["start", None]


def test_the_error_that_ended_the_stream_is_handed_over() -> None:
    calls = Calls()

    with pytest.raises(StreamsError) as raised, TopologyTestDriver(calls.pipeline()) as driver:
        driver.create_input_topic("in").pipe_input("k", 0)

    assert calls == ["start", raised.value]


def test_a_start_that_fails_has_no_end() -> None:
    calls = Calls()

    def refuse() -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        TopologyTestDriver(Pipeline(name="p", topology=topology, on_start=refuse, on_stop=calls.stop))

    assert calls == []


def test_an_error_at_the_end_does_not_hide_the_failure(caplog: pytest.LogCaptureFixture) -> None:
    def bad(_: BaseException | None) -> None:
        raise RuntimeError("the phone is off")

    pipeline = Pipeline(name="p", topology=topology, on_stop=bad)
    with pytest.raises(KeyError, match="lost"), caplog.at_level(logging.ERROR), pipeline.running():
        raise KeyError("lost")
    assert "on_stop of pipeline 'p' failed after the stream had failed" in caplog.text
    assert "the phone is off" in caplog.text

    with pytest.raises(RuntimeError, match="the phone is off"), pipeline.running():
        pass


@pytest.mark.parametrize(
    ("hooks", "what", "hint"),
    [
        ({"on_start": "log"}, "on_start= is 'log'; it is called with ().", "def on_start() -> None: ..."),
        ({"on_start": lambda error: None}, "on_start= is a function with other parameters", "def on_start()"),
        ({"on_stop": lambda: None}, "on_stop= is a function with other parameters", "def on_stop(error)"),
    ],
)
def test_a_hook_that_cannot_be_called_is_told_before_the_start(hooks: dict[str, Any], what: str, hint: str) -> None:
    with pytest.raises(TopologyError) as error:
        Pipeline(name="p", topology=topology, **hooks).plan()
    (problem,) = error.value.problems
    assert what in problem.what
    assert hint in (problem.hint or "")
