"""An operator more in a topology. Its functions take any value and keep its type, as what follows expects one."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.conformance.oracle.shapes import Node, Spec, streams_of, tables_of

_PREDICATES: list[list[Any]] = [
    ["value_not_null"],
    ["value_gt", 2],
    ["value_lt", 5],
    ["value_contains", "a"],
    ["key_starts_with", "a"],
    ["key_eq", "b"],
]
_MAPPERS: list[list[Any]] = [["identity"], ["null_if", 3], ["null_if", "a"], ["to_null"]]
_FAILING: list[list[Any]] = [["fail_on", 5], ["fail_on", "b"]]


def insert_operator(spec: Spec, chance: Random, *, may_fail: bool) -> None:
    """Between a stream or a table and one of its readers."""
    mappers = _MAPPERS + _FAILING if may_fail else _MAPPERS
    tables = tables_of(spec)
    may_be_read = tables | streams_of(spec)
    places = [
        at for at, node in enumerate(spec["nodes"]) if isinstance(node.get("in"), str) and node["in"] in may_be_read
    ]
    if not places:
        return
    at = chance.choice(places)
    reader = spec["nodes"][at]
    name = f"new{len(spec['nodes'])}"
    added = [_on_table(name, mappers, chance)] if reader["in"] in tables else _on_stream(name, mappers, chance)
    added[0]["in"] = reader["in"]
    reader["in"] = added[-1]["id"]
    spec["nodes"][at:at] = added


def _on_table(name: str, mappers: list[list[Any]], chance: Random) -> Node:
    node: Node = {"id": name}
    match chance.choice(["filter", "filter_not", "map_values", "transform_values", "suppress"]):
        case "suppress":
            node |= {"op": "suppress", "until": "time_limit", "limit_ms": chance.choice([0, 2, 5, 10])}
            if chance.random() < 0.5:
                node |= {"max_records": chance.randint(1, 3), "when_full": "emit_early"}
            return node
        case ("map_values" | "transform_values") as operator:
            node |= {"op": operator, "fn": chance.choice(mappers)}
        case operator:
            node |= {"op": operator, "predicate": chance.choice(_PREDICATES)}
    if chance.random() < 0.4:
        node["store"] = f"{name}-store"
    return node


def _on_stream(name: str, mappers: list[list[Any]], chance: Random) -> list[Node]:
    match chance.choice(["filter", "map_values", "peek", "repeat", "same key", "repartition", "table", "later"]):
        case "filter":
            return [{"id": name, "op": "filter", "predicate": chance.choice(_PREDICATES)}]
        case "map_values":
            return [{"id": name, "op": "map_values", "fn": chance.choice(mappers)}]
        case "peek":
            return [{"id": name, "op": "peek"}]
        case "repeat":
            return [{"id": name, "op": "flat_map_values", "fn": ["repeat", 2]}]
        case "same key":  # the DSL cannot know that it is the same
            return [{"id": name, "op": "select_key", "key": ["key"]}]
        case "repartition":
            return [{"id": name, "op": "repartition"}]
        case "later":
            return [{"id": name, "op": "process", "processor": ["shift_timestamp", chance.randint(1, 5)]}]
        case _:
            return [{"id": name, "op": "to_table"}, {"id": f"{name}s", "op": "to_stream", "in": name}]
