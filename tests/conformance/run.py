"""Runs a case on a host and returns what was observed, in the form of its `expected` (SPEC section 8)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Literal

from deltaworks import DeltaworksError, Plan, StreamsBuilder, StreamsError
from deltaworks.kernel.task import ErrorPolicy
from deltaworks.testing import (
    TestKeyValueStore,
    TestSessionStore,
    TestVersionedStore,
    TestWindowStore,
    TopologyTestDriver,
)
from tests.conformance.low_level import low_level_plan
from tests.conformance.topology import Interpreter
from tests.conformance.values import Keys, Typed, shown, unparsed

Case = Mapping[str, Any]
_APPLICATION_ID = "oracle"


def run_case(case: Case, host: str = "driver", *, kept: type = object) -> dict[str, Any]:
    """Builds the topology of a case with the public DSL, feeds its inputs and returns the results.

    Args:
        case: as in the data files; `expected` is not looked at.
        host: `driver`, the test driver.
        kept: `object`: stores keep bytes, as for values that can change; `str`: they keep the values.

    Returns:
        `outputs`, `peeked`, `stores`, or `error` in place of `stores`.
    """
    if host != "driver":
        raise ValueError(f"unknown host '{host}'; there is: driver")
    peeked: list[dict[str, Any]] = []
    step = -1

    def peek(node: str, key: Any, value: Any) -> None:
        peeked.append({"after_input": step, "node": node, "key": shown(key), "value": value})

    try:
        plan = plan_of(case, peek, kept)
    except (DeltaworksError, ValueError) as error:
        return {"error": {"phase": "build", "class": type(error).__name__, "message": str(error)}}
    run = _Run(case, plan)
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
    )
    Interpreter(case, builder, peek, kept).build()
    return builder.build()


class _Run:
    """A case on the driver."""

    def __init__(self, case: Case, plan: Plan) -> None:
        self._case = case
        self._plan = plan
        config = case.get("config", {})
        self.driver = TopologyTestDriver(
            plan,
            wall_clock_ms=config.get("initial_wall_clock_ms", 0),
            errors=ErrorPolicy(
                deserialization=config.get("deserialization_handler", "fail"),
                processing=config.get("processing_handler", "fail"),
            ),
            dead_letter_topic=config.get("dlq_topic"),
            expired_stay_cached=True,
            one_task=True,
        )
        self._types = {
            topic: node["value_type"]
            for node in case["spec"]["nodes"]
            if "value_type" in node
            for topic in node.get("topics") or [node.get("topic")]
        }
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
        value: bytes | None
        if "raw_value" in given:
            value = given["raw_value"].encode()
        elif given["value"] is None:
            value = None
        else:
            value = unparsed(given["value"], self._type(given["topic"]))
        key = None if given["key"] is None else given["key"].encode()
        headers = tuple((name, None if text is None else text.encode()) for name, text in given.get("headers", ()))
        topic.pipe_raw(key, value, timestamp_ms=given["timestamp"], headers=headers)

    def _type(self, topic: str) -> str:
        if topic in self._types:
            return str(self._types[topic])
        patterns = [node for node in self._case["spec"]["nodes"] if "topic_pattern" in node]
        return next(str(node["value_type"]) for node in patterns if re.fullmatch(node["topic_pattern"], topic))

    def outputs_of(self, number: int) -> list[dict[str, Any]]:
        """What became visible since the last call."""
        found: list[dict[str, Any]] = []
        for topic, records in self.driver.produced.items():
            for record in records[self._seen.get(topic, 0) :]:
                row = {
                    "after_input": number,
                    "topic": topic,
                    "key": None if record.key is None else shown(Keys().deserialize(record.key)),
                    "value": None if record.value is None else Typed().deserialize(record.value),
                    "timestamp": record.timestamp_ms,
                }
                if record.headers:
                    row["headers"] = [self._header(name, value) for name, value in record.headers]
                found.append(row)
            self._seen[topic] = len(records)
        return found

    def _header(self, name: str, value: bytes | None) -> list[str | None]:
        text = None if value is None else value.decode()
        hops = {hop for stage in self._plan.stages for hop in stage.hops_in}
        if name == "__streams.errors.topic" and text in hops:
            text = f"{_APPLICATION_ID}-{text}"
        return [name, text]

    def stores(self) -> dict[str, list[dict[str, Any]]]:
        spec = self._case["spec"]
        named = {each["store"] for each in spec["nodes"] if "store" in each} | {
            each["name"] for each in spec.get("stores", ())
        }
        times = sorted({given["timestamp"] for given in self._case["inputs"] if "timestamp" in given})
        return {name: [*_rows(self.driver.store(name), times)] for name in sorted(named)}

    def result(self, peeked: list[dict[str, Any]]) -> dict[str, Any]:
        return {"outputs": self._outputs} | ({"peeked": peeked} if peeked else {})


def _rows(store: Any, times: list[int]) -> list[dict[str, Any]]:
    match store:
        case TestKeyValueStore() | TestWindowStore():
            return [
                {"key": shown(key), "value": value} | ({"timestamp": timestamp_ms} if store.keeps_timestamps else {})
                for key, value, timestamp_ms in store.all_with_timestamps()
            ]
        case TestVersionedStore():
            versions = (
                {
                    "key": shown(key),
                    "latest": _version(store.get(key)),
                    "as_of": [[at, _version(found)] for at in times if (found := store.get_as_of(key, at))],
                }
                for key in store.all_keys()
            )
            return [row for row in versions if row["latest"] or row["as_of"]]
        case TestSessionStore():
            return [{"key": shown(key), "value": value} for key, value in store.all()]
        case _:
            raise TypeError(type(store).__name__)


def _version(record: Any) -> list[Any] | None:
    return None if record is None else [record.value, record.timestamp_ms]
