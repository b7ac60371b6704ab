"""Stream-stream joins, as nodes. A stream joined with itself needs one store only; that is `dsl/optimize.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from deltaworks.dsl.exchanges import exchange
from deltaworks.dsl.graph import Graph
from deltaworks.dsl.joins import Join
from deltaworks.dsl.point import Point, Unknown
from deltaworks.serdes.base import Serde
from deltaworks.serdes.left_or_right import LeftOrRight
from deltaworks.topology.join_windows import JoinWindows
from deltaworks.topology.nodes import JoinWindow, Passthrough, StreamStreamJoin
from deltaworks.topology.stages import StoreSpec


@dataclass(frozen=True)
class _Names:
    """Names of the nodes and stores of a join. Kafka Streams counts each of the five nodes, named or not."""

    this_windowed: str
    other_windowed: str
    this: str
    other: str
    merge: str
    this_store: str
    other_store: str
    waiting: str


def join_streams(at: Point, other: Point, join: Join, *, windows: JoinWindows, store: str) -> Point:
    """Connects a join of two streams; each side goes through an exchange first if its key may have changed.

    Args:
        store: prefix of its stores' names; empty: generated.

    Source: `KStreamImpl#doJoin`, `KStreamImplJoin#join`.
    """
    graph, operator, where = at.graph, join.operator, join.where
    if other.graph is not graph:
        graph.report(f"{operator}: the other stream belongs to another builder.", where, "use one builder for both")
        return at.typed(key=at.key, value=join.value)
    _check_keys(at, other, join)
    if at.rekeyed:
        name = f"{join.name}-left" if join.name else at.node
        at = exchange(at, name, operator=operator, where=where, named=bool(join.name))
    if other.rekeyed:
        name = f"{join.name}-right" if join.name else other.node
        other = exchange(other, name, operator=operator, where=where, named=bool(join.name))
    if not store:
        graph.demand_name(operator, where)
    names = _names(graph, join, store)
    key = at.need(at.key, operator=operator, argument="key", where=where)
    left = at.need(at.value, operator=operator, argument="value", where=where)
    right = other.need(other.value, operator=operator, argument="value", where=where)
    _add_window(at, names.this_windowed, names.this_store, join, windows, key, left)
    _add_window(other, names.other_windowed, names.other_store, join, windows, key, right)
    waiting = None
    if join.kind != "inner":
        waiting = names.waiting
        graph.add_store(StoreSpec(name=waiting, kind="waiting-list", key=key, value=LeftOrRight(left, right)), where)
    interval_ms = graph.config.emit_interval_ms
    graph.add(
        StreamStreamJoin(
            name=names.this,
            parents=(names.this_windowed,),
            side="left",
            windows=windows,
            joiner=join.joiner,
            other=names.other_windowed,
            other_store=names.other_store,
            alone=join.kind != "inner",
            waiting=waiting,
            emit_interval_ms=interval_ms,
            origin=where,
        )
    )
    graph.add(
        StreamStreamJoin(
            name=names.other,
            parents=(names.other_windowed,),
            side="right",
            windows=windows,
            joiner=join.joiner,
            other=names.this_windowed,
            other_store=names.this_store,
            alone=join.kind == "outer",
            waiting=waiting,
            emit_interval_ms=interval_ms,
            origin=where,
        )
    )
    return at.then(Passthrough(name=names.merge, parents=(names.this, names.other), origin=where), value=join.value)


def _names(graph: Graph, join: Join, store: str) -> _Names:
    left, outer = join.kind != "inner", join.kind == "outer"
    this_suffix = "-outer-this-join" if outer else "-this-join"
    other_suffix = "-outer-other-join" if left else "-other-join"

    def node(suffix: str, prefix: str) -> str:
        return graph.name_of(join.name and join.name + suffix, prefix)

    this_windowed, other_windowed = (node(f"-{side}-windowed", "KSTREAM-WINDOWED-") for side in ("this", "other"))
    this = graph.next_name("KSTREAM-OUTERTHIS-" if outer else "KSTREAM-JOINTHIS-")
    other = graph.next_name("KSTREAM-OUTEROTHER-" if left else "KSTREAM-JOINOTHER-")
    shared_suffix = "-outer-shared-join" if outer else "-left-shared-join"
    number = this.rpartition("-")[2]
    return _Names(
        this_windowed=this_windowed,
        other_windowed=other_windowed,
        this=join.name + this_suffix if join.name else this,
        other=join.name + other_suffix if join.name else other,
        merge=node("-merge", "KSTREAM-MERGE-"),
        this_store=(store + this_suffix if store else this) + "-store",
        other_store=(store + other_suffix if store else other) + "-store",
        waiting=(store + shared_suffix if store else f"KSTREAM-OUTERSHARED-{number}") + "-store",
    )


def _add_window(
    at: Point, node: str, store: str, join: Join, windows: JoinWindows, key: Serde[Any], value: Serde[Any]
) -> None:
    at.graph.add(JoinWindow(name=node, parents=(at.node,), windows=windows, store=store, origin=join.where))
    spec = StoreSpec(
        name=store,
        kind="join-window",
        key=key,
        value=value,
        retention_ms=windows.retention_ms,
    )
    at.graph.add_store(spec, join.where)


def _check_keys(at: Point, other: Point, join: Join) -> None:
    """Partners are found by the bytes of the key, so both sides must write it alike."""
    unknown = isinstance(at.key, Unknown) or isinstance(other.key, Unknown)
    if at.key.name != other.key.name and not unknown:
        at.graph.report(
            f"{join.operator}: keys of the left stream are {at.key.name}, keys of the right one are {other.key.name};"
            " a join needs keys of one type.",
            join.where,
            "select_key(...) to one type first",
        )
