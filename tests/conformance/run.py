"""Runs a case on a host and returns what was observed, in the form of its `expected` (SPEC section 8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Literal

from deltaworks import DeltaworksError, Plan, StreamsBuilder, StreamsError
from deltaworks.testing import TopologyTestDriver
from deltaworks.testing.clocks import instant_at
from tests.conformance.inputs import Case, errors_of, initial_wall_clock_ms, record_of
from tests.conformance.low_level import low_level_plan
from tests.conformance.outputs import output_row, store_names, store_rows
from tests.conformance.topology import Interpreter
from tests.conformance.values import shown


def run_case(case: Case, host: str = "driver", *, kept: type = object, as_kafka_driver: bool = True) -> dict[str, Any]:
    """Builds the topology of a case with the public DSL, feeds its inputs and returns the results.

    Args:
        case: as in the data files; `expected` is not looked at.
        host: `driver`, the test driver; `task`, the streaming host's tasks in one process, with random batch cuts,
            restarts and failed attempts; `streaming`, real Spark and Kafka, which are started at the first call. Off
            the driver outputs count per topic and key, they have no `after_input`, and nothing is peeked.
        kept: `object`: stores keep bytes, as for values that can change; `str`: they keep the values.
        as_kafka_driver: with two things that Kafka Streams' test driver does and our hosts do not: a record cache shows
            what has left the store, and users' processors see the stream time of all stages together.

    Returns:
        `outputs`, `peeked`, `stores`, or `error` in place of `stores`.
    """
    if host != "driver":
        from tests.conformance.off_driver import run_off_driver

        return run_off_driver(case, host)
    peeked: list[dict[str, Any]] = []
    step = -1

    def peek(node: str, key: Any, value: Any) -> None:
        peeked.append({"after_input": step, "node": node, "key": shown(key), "value": value})

    try:
        plan = plan_of(case, peek, kept)
    except (DeltaworksError, ValueError) as error:
        return {"error": {"phase": "build", "class": type(error).__name__, "message": str(error)}}
    run = _Run(case, plan, as_kafka_driver)
    for step in range(len(case["inputs"])):
        try:
            run.step(step)
        except (StreamsError, KeyError) as error:
            failed = run.outputs_of(step)
            return run.result(peeked) | {
                "error": {"phase": "run", "after_input": step, "class": type(error).__name__, "message": str(error)},
                "outputs_of_failed_step": failed,
            }
    return run.result(peeked) | {"stores": run.stores(), "dropped_records": run.driver.metrics.dropped}


def describe_case(case: Case) -> str:
    """The description of its topology."""
    return plan_of(case, lambda *_: None, object).describe()


def plan_of(case: Case, peek: Callable[[str, Any, Any], None], kept: type) -> Plan:
    """Its topology."""
    config = case.get("config", {})
    names: Literal["all", "none"] = "all" if config.get("require_explicit_names") else "none"
    if case["spec"].get("api") == "processor":
        return low_level_plan(case, kept)
    builder = StreamsBuilder(
        case["name"],
        record_cache=config.get("cache_max_bytes", 0) > 0,
        explicit_names=names,
        optimize=config.get("optimize", False),
        emit_interval=timedelta(milliseconds=config.get("emit_interval_ms", 0)),
        compatible_with_kafka=True,
    )
    Interpreter(case, builder, peek, kept).build()
    return builder.build()


class _Run:
    """A case on the driver."""

    def __init__(self, case: Case, plan: Plan, as_kafka_driver: bool) -> None:
        self._case = case
        self._plan = plan
        config = case.get("config", {})
        self.driver = TopologyTestDriver(
            plan,
            initial_wall_clock=instant_at(initial_wall_clock_ms(case)),
            errors=errors_of(case),
            dead_letter_topic=config.get("dlq_topic"),
            expired_stay_cached=as_kafka_driver,
            one_task=as_kafka_driver,
        )
        self._seen: dict[str, int] = {}
        self._outputs: list[dict[str, Any]] = []

    def step(self, number: int) -> None:
        given = self._case["inputs"][number]
        if "advance_wall_clock_ms" in given:
            self.driver.advance_wall_clock_time(timedelta(milliseconds=given["advance_wall_clock_ms"]))
        else:
            self._pipe(given)
        self._outputs += self.outputs_of(number)

    def _pipe(self, given: Mapping[str, Any]) -> None:
        topic = self.driver.create_input_topic(given["topic"])
        record = record_of(self._case, given)
        topic.pipe_raw(record.key, record.value, timestamp_ms=record.timestamp_ms, headers=record.headers)

    def outputs_of(self, number: int) -> list[dict[str, Any]]:
        """What became visible since the last call."""
        found: list[dict[str, Any]] = []
        for topic, records in self.driver.produced.items():
            for record in records[self._seen.get(topic, 0) :]:
                found.append({"after_input": number} | output_row(self._plan, topic, record))
            self._seen[topic] = len(records)
        return found

    def stores(self) -> dict[str, list[dict[str, Any]]]:
        return {name: store_rows(self._case, self.driver.store(name)) for name in store_names(self._case)}

    def result(self, peeked: list[dict[str, Any]]) -> dict[str, Any]:
        return {"outputs": self._outputs} | ({"peeked": peeked} if peeked else {})
