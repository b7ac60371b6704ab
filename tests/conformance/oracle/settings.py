"""Changes to a case that leave its operators as they are."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from tests.conformance.oracle.shapes import AGGREGATES, Node, Spec, tables_of

_TIMES_MS = [1, 2, 3, 4, 5, 7, 10, 15, 20, 50]
_GRACES_MS = [0, 1, 3, 5, 10, 20, 50]
_HISTORIES_MS = [0, 1, 5, 10, 30, 50, 1000]
_NAMED = ("group_by_key", "group_by", "repartition", "join_stream_table", "join_stream_stream")


def vary_numbers(spec: Spec, chance: Random) -> None:
    """Windows, kinds of joins, limits, retention."""
    for node in spec["nodes"]:
        if "window" in node and chance.random() < 0.7:
            _vary_window(node["window"], chance)
        if node["op"].startswith("join_") and chance.random() < 0.5:
            symmetric = node["op"] in ("join_stream_stream", "join_table_table")
            node["kind"] = chance.choice(["inner", "left", *(["outer"] if symmetric else [])])
        _replace(node, "limit_ms", [0, *_TIMES_MS], chance)
        _replace(node, "max_records", range(1, 6), chance)
        _replace(node, "history_ms", _HISTORIES_MS, chance)
        _replace(node, "retention_ms", [50, 200, 1000, 100_000], chance)
        if node["op"] == "join_stream_table":
            _replace(node, "grace_ms", [0, 1, 5, 10], chance)
    # Joined tables have the same windows: keys of others would be equal in their bytes only.
    if any(node["op"] == "join_table_table" for node in spec["nodes"]):
        first: dict[str, Node] = {}
        for node in spec["nodes"]:
            if node["op"] == "windowed_by":
                node["window"] |= first.setdefault(node["window"]["type"], node["window"])
    # A join may not look further back than its table remembers; let most cases get past that check.
    shortest = min((node["history_ms"] for node in spec["nodes"] if "history_ms" in node), default=None)
    for node in spec["nodes"]:
        if shortest is not None and node["op"] == "join_stream_table" and "grace_ms" in node:
            node["grace_ms"] = min(node["grace_ms"], shortest)
    for store in spec.get("stores", ()):
        _replace(store, "retention_ms", [10, 20, 30, 50, 100], chance)
        _replace(store, "max_entries", range(1, 5), chance)
        _replace(store, "history_ms", [0, 5, 10, 30], chance)
        if "window_size_ms" in store:
            store["window_size_ms"] = min(store["window_size_ms"], store["retention_ms"])


def vary_caches(spec: Spec, config: dict[str, Any], chance: Random) -> None:
    """The record cache as a whole and of single stores."""
    if chance.random() < 0.3:
        config["cache_max_bytes"] = 0 if config.get("cache_max_bytes") else 1_000_000
    for node in spec["nodes"]:
        if node["op"] in AGGREGATES and "store" in node and chance.random() < 0.1:
            node["caching"] = chance.random() < 0.5


def vary_stores_and_names(spec: Spec, chance: Random) -> None:
    """Which stores and internal topics have a name of their own: what has none gets a generated one."""
    connected = {name for node in spec["nodes"] for name in node.get("stores", ())}
    tables = tables_of(spec)
    for at, node in enumerate(spec["nodes"]):
        if _may_have_store(node, tables) and node.get("store") not in connected and chance.random() < 0.12:
            _toggle(node, "store", f"store-{at}")
        if node["op"] in _NAMED and chance.random() < 0.12:
            _toggle(node, "name", f"name-{at}")


def _may_have_store(node: Node, tables: set[str]) -> bool:
    return node["op"] in ("join_table_table", "to_table", *AGGREGATES) or (
        node["op"] in ("filter", "filter_not", "map_values") and node["in"] in tables
    )


def _toggle(node: Node, field: str, name: str) -> None:
    if field not in node:
        node[field] = name
    elif "retention_ms" not in node and "caching" not in node:
        del node[field]


def vary_results(spec: Spec, chance: Random) -> None:
    """When aggregates and suppressed tables give their results."""
    grouped = {node["id"]: node["op"] for node in spec["nodes"] if "id" in node}
    for node in spec["nodes"]:
        if node["op"] == "windowed_by" and chance.random() < 0.15 and grouped.get(node["in"]) != "cogroup":
            node["emit"] = chance.choice(["on_window_update", "on_window_close"])
        if node["op"] == "suppress" and chance.random() < 0.3:
            _vary_suppression(node, chance)


def _vary_suppression(node: Node, chance: Random) -> None:
    windowed = node["until"] == "window_close"
    for field in ("until", "limit_ms", "max_records", "when_full"):
        node.pop(field, None)
    if windowed and chance.random() < 0.6:
        node["until"] = "window_close"
        if chance.random() < 0.5:
            node["max_records"] = chance.randint(1, 6)
        return
    node |= {"until": "time_limit", "limit_ms": chance.choice([0, *_TIMES_MS])}
    if chance.random() < 0.7:
        node |= {"max_records": chance.randint(1, 5), "when_full": chance.choice(["emit_early", "shut_down"])}


def _vary_window(window: Node, chance: Random) -> None:
    _replace(window, "before_ms", [0, *_TIMES_MS[:8]], chance)
    _replace(window, "after_ms", [0, *_TIMES_MS[:8]], chance)
    _replace(window, "size_ms", _TIMES_MS[1:], chance)
    _replace(window, "diff_ms", _TIMES_MS, chance)
    _replace(window, "gap_ms", _TIMES_MS, chance)
    _replace(window, "start_ms", [0, 5, 20], chance)
    _replace(window, "grace_ms", _GRACES_MS, chance)
    if "advance_ms" in window:
        window["advance_ms"] = chance.randint(1, window["size_ms"])


def _replace(node: Node, field: str, numbers: Sequence[int], chance: Random) -> None:
    if field in node:
        node[field] = chance.choice(numbers)
