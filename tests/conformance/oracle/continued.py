"""A topology that goes on where a recorded one ends. Its functions take any value."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.conformance.oracle.shapes import Node, Spec, streams_of

_KEYS: list[list[Any]] = [
    ["key_text"],
    ["value_as_key"],
    ["first_char_of_value"],
    ["first_char_of_key"],
    ["const", "k"],
]
_EXTRA = "extra"
"""Topic of what is joined."""


def continue_after_last(spec: Spec, chance: Random) -> None:
    """The stream of the last sink is read a second time, under another key, and aggregated or joined."""
    streams = streams_of(spec)
    ends = [node["in"] for node in spec["nodes"] if node["op"] == "to" and node["in"] in streams]
    if not ends:
        return
    spec["nodes"].append({"id": "more", "op": "select_key", "in": ends[-1], "key": chance.choice(_KEYS)})
    match chance.choice(["aggregate", "windows", "regroup", "stream-table", "stream-stream", "tables", "global"]):
        case "aggregate":
            added = [_group(), *_aggregate(_GROUP, chance), _to_stream("more-aggregate")]
        case "windows":
            added = _windows(chance)
        case "regroup":
            regroup: Node = {
                "id": "more-regroup",
                "op": "group_by",
                "in": "more-aggregate",
                "key": chance.choice(_KEYS),
            }
            regroup |= {"value": ["identity"]}
            second: Node = {"id": "more-second", "op": "aggregate", "in": "more-regroup", "initializer": ""}
            second |= {"adder": ["append_text", "+"], "subtractor": ["append_text", "-"]}
            added = [_group(), *_aggregate(_GROUP, chance), regroup, second, _to_stream("more-second")]
        case "stream-table":
            added = [_extra("table"), _join("more", "join_stream_table", ["inner", "left"], chance)]
        case "stream-stream":
            join = _join("more", "join_stream_stream", ["inner", "left", "outer"], chance)
            join["window"] = {field: chance.choice([1, 3, 10]) for field in ("before_ms", "after_ms", "grace_ms")}
            added = [_extra("stream"), join]
        case "tables":
            join = _join("more-aggregate", "join_table_table", ["inner", "left", "outer"], chance)
            added = [_group(), *_aggregate(_GROUP, chance), _extra("table"), join, _to_stream(join["id"])]
        case _:
            join = _join("more", "join_stream_global", ["inner", "left"], chance)
            added = [_extra("global_table") | {"store": "extra-store"}, join | {"key": chance.choice(_KEYS)}]
    spec["nodes"] += [*added, {"id": "more-to", "op": "to", "in": added[-1]["id"], "topic": "more"}]


_GROUP = "more-group"


def _group() -> Node:
    return {"id": _GROUP, "op": "group_by_key", "in": "more"}


def _windows(chance: Random) -> list[Node]:
    """Of every type, with results as they come or at the end."""
    size_ms = chance.choice([2, 5, 10, 20])
    grace_ms = chance.choice([0, 3, 10])
    window: Node = {"grace_ms": grace_ms}
    match chance.choice(["tumbling", "hopping", "sliding", "session"]):
        case "tumbling":
            window |= {"type": "tumbling", "size_ms": size_ms}
        case "hopping":
            window |= {"type": "hopping", "size_ms": size_ms, "advance_ms": chance.randint(1, size_ms)}
        case "sliding":
            window |= {"type": "sliding", "diff_ms": size_ms}
        case _:
            window |= {"type": "session", "gap_ms": size_ms}
    windowed: Node = {"id": "more-window", "op": "windowed_by", "in": _GROUP, "window": window}
    last = "more-aggregate"
    final: list[Node] = []
    match chance.choice(["updates", "on close", "suppressed"]):
        case "on close":
            windowed["emit"] = "on_window_close"
        case "suppressed":
            last = "more-final"
            final.append({"id": last, "op": "suppress", "in": "more-aggregate", "until": "window_close"})
    merger = [["concat", "&"]] if window["type"] == "session" else []
    return [_group(), windowed, *_aggregate("more-window", chance, *merger), *final, _to_stream(last)]


def _aggregate(group: str, chance: Random, merger: list[Any] | None = None) -> list[Node]:
    node: Node = {"id": "more-aggregate", "in": group}
    match chance.choice(["count", "reduce", "aggregate"]):
        case "reduce":
            node |= {"op": "reduce", "reducer": chance.choice([["last"], ["first"], ["max"], ["min"]])}
        case "aggregate":
            node |= {"op": "aggregate", "initializer": "", "aggregator": chance.choice([["concat", "|"], ["last"]])}
            if merger is not None:
                node["merger"] = merger
        case _:
            node["op"] = "count"
    if chance.random() < 0.7:
        node["store"] = "more-store"
    return [node]


def _extra(operator: str) -> Node:
    return {"id": _EXTRA, "op": operator, "topic": _EXTRA, "value_type": "string"}


def _join(left: str, operator: str, kinds: list[str], chance: Random) -> Node:
    kind = chance.choice(kinds)
    return {"id": "more-join", "op": operator, "in": [left, _EXTRA], "kind": kind, "joiner": ["concat_lr"]}


def _to_stream(table: str) -> Node:
    return {"id": "more-stream", "op": "to_stream", "in": table}
