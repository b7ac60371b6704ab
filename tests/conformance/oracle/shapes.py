"""What the operators of a case give: which are streams, which are tables."""

from __future__ import annotations

from typing import Any

Node = dict[str, Any]
Spec = dict[str, Any]

AGGREGATES = ("count", "reduce", "aggregate")
_TABLES = {"table", "to_table", "join_table_table", "join_foreign_key", "suppress", *AGGREGATES}
_STREAMS = {
    *("stream", "merge", "repartition", "process", "process_values", "peek", "to_stream"),
    *("map", "flat_map", "flat_map_values", "select_key"),
    *("join_stream_stream", "join_stream_table", "join_stream_global"),
}
_OF_BOTH = {"filter", "filter_not", "map_values", "transform_values"}


def tables_of(spec: Spec) -> set[str]:
    """Ids of tables, windowed ones included; a global table is none."""
    tables: set[str] = set()
    for node in spec["nodes"]:
        if node["op"] in _TABLES or (node["op"] in _OF_BOTH and node["in"] in tables):
            tables.add(node["id"])
    return tables


def streams_of(spec: Spec) -> set[str]:
    """Ids of streams, branches included."""
    tables = tables_of(spec)
    streams: set[str] = set()
    for node in spec["nodes"]:
        if node["op"] == "split":
            default = [node["default"]] if node.get("default") else []
            streams.update([branch["id"] for branch in node["branches"]], default)
        elif node["op"] in _STREAMS or (node["op"] in _OF_BOTH and node["id"] not in tables):
            streams.add(node["id"])
    return streams
