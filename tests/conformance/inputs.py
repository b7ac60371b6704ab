"""The inputs of a case (SPEC section 1) as records and as times of the wall clock."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from deltaworks.kernel.task import ErrorPolicy
from deltaworks.testing.topics import RawRecord
from tests.conformance.values import unparsed

Case = Mapping[str, Any]


def record_of(case: Case, given: Mapping[str, Any]) -> RawRecord:
    """An input that is a record, as its topic holds it."""
    value: bytes | None
    if "raw_value" in given:
        value = given["raw_value"].encode()
    elif given["value"] is None:
        value = None
    else:
        value = unparsed(given["value"], _value_type(case, given["topic"]))
    key = None if given["key"] is None else given["key"].encode()
    headers = tuple((name, None if text is None else text.encode()) for name, text in given.get("headers", ()))
    return RawRecord(key, value, given["timestamp"], headers)


def errors_of(case: Case) -> ErrorPolicy:
    """What it says about records that fail."""
    config = case.get("config", {})
    return ErrorPolicy(
        deserialization=config.get("deserialization_handler", "fail"),
        processing=config.get("processing_handler", "fail"),
    )


def initial_wall_clock_ms(case: Case) -> int:
    return int(case.get("config", {}).get("initial_wall_clock_ms", 0))


def _value_type(case: Case, topic: str) -> str:
    sources = [node for node in case["spec"]["nodes"] if "value_type" in node]
    for node in sources:
        if topic in (node.get("topics") or [node.get("topic")]):
            return str(node["value_type"])
    by_pattern = (node for node in sources if re.fullmatch(node.get("topic_pattern", ""), topic))
    return str(next(by_pattern, {"value_type": "string"})["value_type"])
