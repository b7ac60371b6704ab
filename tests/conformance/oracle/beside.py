"""Two topologies in one: they share topics, and one of them may read what the other one writes."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

from tests.conformance.oracle.shapes import Node, Spec, streams_of

_NAMES = ("id", "store", "name", "default")
_PREFIX = "b-"


def place_beside(spec: Spec, other: Spec, chance: Random) -> None:
    """Adds all of another case under other names; streams of the same topic and type are read twice."""
    read = {(node.get("topic"), node.get("value_type")) for node in spec["nodes"] if node["op"] == "stream"}
    added = [_renamed(node) for node in copy.deepcopy(other["nodes"])]
    for node in added:
        shared = node["op"] == "stream" and (node.get("topic"), node["value_type"]) in read
        if "topic" in node and not shared:
            node["topic"] = _PREFIX + node["topic"]
        if "topics" in node:
            node["topics"] = [_PREFIX + topic for topic in node["topics"]]
    ours, theirs = _last_stream(spec), _last_stream({"nodes": added})
    spec["nodes"] += added
    if other.get("stores"):
        stores = [store | {"name": _PREFIX + store["name"]} for store in other["stores"]]
        spec["stores"] = [*spec.get("stores", ()), *stores]
    if ours is None or theirs is None:
        return
    match chance.choice(["apart", "merged", "into the other"]):
        case "merged":
            spec["nodes"] += [
                # What is merged is of one type.
                {"id": "both-a", "op": "map", "in": ours, "key": ["key_text"], "value": ["text_or_null"]},
                {"id": "both-b", "op": "map", "in": theirs, "key": ["key_text"], "value": ["text_or_null"]},
                {"id": "both", "op": "merge", "in": ["both-a", "both-b"]},
                {"id": "both-to", "op": "to", "in": "both", "topic": "both"},
            ]
        case "into the other":  # in two steps, through a topic that is an output and an input
            # Not one that both read: that would go round for ever.
            topics = [node["topic"] for node in added if node["op"] == "stream" and "topic" in node]
            topic = next((topic for topic in topics if topic.startswith(_PREFIX)), None)
            if topic is not None:
                spec["nodes"].append({"id": "into", "op": "to", "in": ours, "topic": topic})


def _renamed(node: Node) -> Node:
    for field in _NAMES:
        if node.get(field) is not None:
            node[field] = _PREFIX + node[field]
    for field in ("in", "stores"):
        if isinstance(node.get(field), str):
            node[field] = _PREFIX + node[field]
        elif field in node:
            node[field] = [_PREFIX + each for each in node[field]]
    for branch in node.get("branches", ()):
        branch["id"] = _PREFIX + branch["id"]
    processor: list[Any] = node.get("processor", [])
    if len(processor) > 1 and isinstance(processor[1], dict) and "store" in processor[1]:
        processor[1]["store"] = _PREFIX + processor[1]["store"]
    return node


def _last_stream(spec: Spec) -> str | None:
    streams = streams_of(spec)
    return next((node["in"] for node in reversed(spec["nodes"]) if node["op"] == "to" and node["in"] in streams), None)
