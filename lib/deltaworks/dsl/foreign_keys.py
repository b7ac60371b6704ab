"""Joining tables by a foreign key: two exchanges, the five operators between them, and the table of the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from deltaworks.dsl.lookups import lookup_stores
from deltaworks.dsl.materialized import Materialized, Stored
from deltaworks.dsl.old_values import ask_for_old_values
from deltaworks.dsl.point import Known, Point, Unknown
from deltaworks.serdes import serde_for
from deltaworks.serdes.foreign_keys import Answer, AnswerSerde, SubscriptionSerde
from deltaworks.serdes.inference import returned
from deltaworks.topology.nodes import (
    ExchangeSink,
    ForeignKeyAnswer,
    ForeignKeyRegister,
    ForeignKeyResolve,
    ForeignKeySubscribe,
    ForeignKeyUpdate,
    Source,
)
from deltaworks.topology.nodes.base import Origin
from deltaworks.topology.stages import StoreSpec

if TYPE_CHECKING:
    from deltaworks.dsl.ktable import KTable

_SUBSCRIPTION = "KTABLE-FK-JOIN-SUBSCRIPTION-"


def join_foreign_key(
    left: Point,
    right: Point,
    foreign_key: Callable[[Any, Any], Any],
    joiner: Callable[[Any, Any], Any],
    *,
    kind: Literal["inner", "left"],
    operator: str,
    value: Known,
    store: Stored,
    name: str | None,
    where: Origin,
) -> KTable[Any, Any]:
    """Connects a foreign-key join. Every name uses up a number, given or not.

    Source: `KTableImpl#doJoinOnForeignKey`.
    """
    from deltaworks.dsl.ktable import KTable
    from deltaworks.dsl.materialize import table_source

    graph = left.graph

    def named(suffix: str, prefix: str) -> str:
        return graph.name_of(f"{name}-{suffix}" if name else None, prefix)

    if right.graph is not graph:
        graph.report(f"{operator}: the other table belongs to another builder.", where, "use one builder for both")
        return KTable(left.typed(key=left.key, value=value))
    if not name and graph.config.explicit_names != "none":
        graph.report(
            f"{operator} has no name for the store of its subscriptions; names are state, so they are not made up.",
            where,
            f"{operator}(..., name='...')",
        )
    left_key = left.need(left.key, operator=operator, argument="key", where=where)
    left_value = left.need(left.value, operator=operator, argument="value", where=where)
    right_key = right.need(right.key, operator=operator, argument="key", where=where)
    right_value = right.need(right.value, operator=operator, argument="value", where=where)
    asked = serde_for(returned(foreign_key))
    if asked is not None and asked.name != right_key.name and not isinstance(right.key, Unknown):
        graph.report(
            f"{operator}: the foreign key is {asked.name}, keys of the other table are {right_key.name}; they must be"
            " of one type.",
            where,
            f"return what the other table has as its key ({right_key.name})",
        )
    ask_for_old_values(graph, right.node, force=True)
    ask_for_old_values(graph, left.node, force=True)

    there = named("subscription-registration", f"{_SUBSCRIPTION}REGISTRATION-") + "-topic"
    subscribing = graph.add(
        ForeignKeySubscribe(
            name=named("subscription-registration-processor", f"{_SUBSCRIPTION}REGISTRATION-"),
            parents=(left.node,),
            foreign_key=foreign_key,
            kind=kind,
            key=left_key,
            value=left_value,
            other_key=right_key,
            origin=where,
        )
    )
    subscription = SubscriptionSerde()
    graph.add(
        ExchangeSink(
            name=named("subscription-registration-sink", "KTABLE-SINK-"),
            parents=(subscribing.name,),
            exchange=there,
            key=right_key,
            value=subscription,
            origin=where,
        )
    )
    arriving = graph.add(
        Source(
            name=named("subscription-registration-source", "KTABLE-SOURCE-"),
            topics=(there,),
            key=right_key,
            value=subscription,
            exchange=True,
            origin=where,
        )
    )
    subscriptions = named("subscription-store", f"{_SUBSCRIPTION}STATE-STORE-")
    graph.add_store(StoreSpec(name=subscriptions, kind="subscriptions", key=right_key, value=subscription), where)
    registering = graph.add(
        ForeignKeyRegister(
            name=named("subscription-receive", f"{_SUBSCRIPTION}PROCESSOR-"),
            parents=(arriving.name,),
            key=right_key,
            store=subscriptions,
            origin=where,
        )
    )
    answering = graph.add(
        ForeignKeyAnswer(
            name=named("subscription-join-foreign", f"{_SUBSCRIPTION}PROCESSOR-"),
            parents=(registering.name,),
            table=right.node,
            table_stores=lookup_stores(graph, right.node),
            key=left_key,
            origin=where,
        )
    )
    updating = graph.add(
        ForeignKeyUpdate(
            name=named("foreign-join-subscription", f"{_SUBSCRIPTION}PROCESSOR-"),
            parents=(right.node,),
            store=subscriptions,
            key=left_key,
            other_key=right_key,
            origin=where,
        )
    )
    back = named("subscription-response", f"{_SUBSCRIPTION}RESPONSE-") + "-topic"
    graph.add(
        ExchangeSink(
            name=named("subscription-response-sink", "KTABLE-SINK-"),
            parents=(answering.name, updating.name),
            exchange=back,
            key=left_key,
            value=AnswerSerde(right_value),
            partitioner=to_the_asking_task,
            origin=where,
        )
    )
    returning = graph.add(
        Source(
            name=named("subscription-response-source", "KTABLE-SOURCE-"),
            topics=(back,),
            key=left_key,
            value=AnswerSerde(right_value),
            exchange=True,
            origin=where,
        )
    )
    resolving = graph.add(
        ForeignKeyResolve(
            name=named("subscription-response-resolver", f"{_SUBSCRIPTION}RESPONSE-RESOLVER-PROCESSOR-"),
            parents=(returning.name,),
            table=left.node,
            table_stores=lookup_stores(graph, left.node),
            value=left_value,
            joiner=joiner,
            kind=kind,
            origin=where,
        )
    )
    result = named("result", "KTABLE-FK-JOIN-OUTPUT-")
    kept = Materialized.of(store)
    with_name = replace(kept, name=graph.store_name(kept.name, "KTABLE-FK-JOIN-OUTPUT-"))
    at = replace(left, node=resolving.name, value=value, rekeyed=False)
    table: KTable[Any, Any] = table_source(at, result, kept, with_name, operator=operator, where=where)
    return table


def to_the_asking_task(_exchange: str, _key: object, value: Answer, _partitions: int) -> int:
    """An answer goes where the row lives that asked, which need not be where its key would go."""
    return value.task
