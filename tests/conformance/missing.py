"""What the DSL does not have yet, by what a case uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_OPERATORS = {
    "process",
    "process_values",
    "global_store",
    "join_table_table",
    "join_foreign_key",
    "suppress",
    "cogroup",
    "transform_values",
}
_FIELDS = {
    "history_ms",
    "timestamp_extractor",
    "topic_pattern",
    "topic_extractor",
    "adder",
    "subtractor",
    "caching",
    "emit",
}
_WINDOWS = {"sliding", "unlimited"}
_CONFIG = {"optimize", "require_explicit_names"}


def missing(case: Mapping[str, Any]) -> str | None:
    """What a case uses that the DSL does not have yet; None: it can be run."""
    return next(_missing(case), None)


def _missing(case: Mapping[str, Any]) -> Iterator[str]:
    spec = case["spec"]
    if spec.get("api") == "processor":
        yield "processor api"
    yield from (f"config {key}" for key in case.get("config", {}).keys() & _CONFIG)
    tables: set[str] = set()
    for node in spec["nodes"]:
        of_table = isinstance(node.get("in"), str) and node["in"] in tables
        if node["op"] in _OPERATORS:
            yield node["op"]
        yield from (f"{node['op']} with {field}" for field in _FIELDS & node.keys())
        if node["op"] == "windowed_by" and node["window"]["type"] in _WINDOWS:
            yield f"{node['window']['type']} windows"
        if of_table and node["op"] in ("group_by", "group_by_key"):
            yield "group_by on a table"
        if node["op"] in ("filter", "filter_not", "map_values") and "store" in node:
            yield f"{node['op']} with store"
        if node["op"] in ("table", "to_table", "count", "reduce", "aggregate") or (
            of_table and node["op"] in ("filter", "filter_not", "map_values")
        ):
            tables.add(node["id"])
