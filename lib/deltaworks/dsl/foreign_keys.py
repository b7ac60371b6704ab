"""Joining tables by a foreign key: two exchanges, the five operators between them, and the table of the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from deltaworks.dsl.graph import Graph
from deltaworks.dsl.materialized import Materialized, Stored
from deltaworks.dsl.point import Known, Point, Unknown
from deltaworks.dsl.table_readers import ask_for_old_values, lookup_stores
from deltaworks.serdes import Serde, serde_for
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
from deltaworks.topology.routing import StreamPartitioner
from deltaworks.topology.stages import StoreSpec

if TYPE_CHECKING:
    from deltaworks.dsl.ktable import KTable

_SUBSCRIPTION = "KTABLE-FK-JOIN-SUBSCRIPTION-"


@dataclass(frozen=True)
class _Join:
    """The inputs of a join. Its methods connect the nodes, in the order in which Kafka Streams numbers them."""

    left: Point
    right: Point
    left_key: Serde[Any]
    left_value: Serde[Any]
    right_key: Serde[Any]
    right_value: Serde[Any]
    kind: Literal["inner", "left"]
    name: str | None
    where: Origin

    @property
    def graph(self) -> Graph:
        return self.left.graph

    def named(self, suffix: str, prefix: str) -> str:
        """The name of a node or topic; it uses up a number, given or not."""
        return self.graph.name_of(f"{self.name}-{suffix}" if self.name else None, prefix)

    def subscribe(self, foreign_key: Callable[[Any, Any], Any]) -> str:
        """Sends the foreign key of each row to the task that has the other row; the source of what arrives there."""
        topic = self.named("subscription-registration", f"{_SUBSCRIPTION}REGISTRATION-") + "-topic"
        subscribing = self.graph.add(
            ForeignKeySubscribe(
                name=self.named("subscription-registration-processor", f"{_SUBSCRIPTION}REGISTRATION-"),
                parents=(self.left.node,),
                foreign_key=foreign_key,
                kind=self.kind,
                key=self.left_key,
                value=self.left_value,
                other_key=self.right_key,
                origin=self.where,
            )
        )
        return self._exchange(
            topic, "subscription-registration", (subscribing.name,), self.right_key, SubscriptionSerde()
        )

    def answer(self, arriving: str) -> tuple[str, str]:
        """Keeps subscriptions beside the other table; the nodes that answer new ones, and changes of that table."""
        store = self.named("subscription-store", f"{_SUBSCRIPTION}STATE-STORE-")
        spec = StoreSpec(name=store, kind="subscriptions", key=self.right_key, value=SubscriptionSerde())
        self.graph.add_store(spec, self.where)
        registering = self.graph.add(
            ForeignKeyRegister(
                name=self.named("subscription-receive", f"{_SUBSCRIPTION}PROCESSOR-"),
                parents=(arriving,),
                key=self.right_key,
                store=store,
                origin=self.where,
            )
        )
        answering = self.graph.add(
            ForeignKeyAnswer(
                name=self.named("subscription-join-foreign", f"{_SUBSCRIPTION}PROCESSOR-"),
                parents=(registering.name,),
                table=self.right.node,
                table_stores=lookup_stores(self.graph, self.right.node),
                key=self.left_key,
                origin=self.where,
            )
        )
        updating = self.graph.add(
            ForeignKeyUpdate(
                name=self.named("foreign-join-subscription", f"{_SUBSCRIPTION}PROCESSOR-"),
                parents=(self.right.node,),
                store=store,
                key=self.left_key,
                other_key=self.right_key,
                origin=self.where,
            )
        )
        return answering.name, updating.name

    def send_back(self, answers: tuple[str, str]) -> str:
        """Sends answers to the tasks that have asked; the source of what arrives there."""
        topic = self.named("subscription-response", f"{_SUBSCRIPTION}RESPONSE-") + "-topic"
        return self._exchange(
            topic, "subscription-response", answers, self.left_key, AnswerSerde(self.right_value), to_the_asking_task
        )

    def resolve(self, returning: str, joiner: Callable[[Any, Any], Any]) -> str:
        """Joins an answer with the row that has asked, as it is now; the node of the results."""
        resolving = self.graph.add(
            ForeignKeyResolve(
                name=self.named("subscription-response-resolver", f"{_SUBSCRIPTION}RESPONSE-RESOLVER-PROCESSOR-"),
                parents=(returning,),
                table=self.left.node,
                table_stores=lookup_stores(self.graph, self.left.node),
                value=self.left_value,
                joiner=joiner,
                kind=self.kind,
                origin=self.where,
            )
        )
        return resolving.name

    def _exchange(
        self,
        topic: str,
        suffix: str,
        parents: tuple[str, ...],
        key: Serde[Any],
        value: Serde[Any],
        partitioner: StreamPartitioner | None = None,
    ) -> str:
        """Connects the sink and the source of an exchange; the name of the source."""
        self.graph.add(
            ExchangeSink(
                name=self.named(f"{suffix}-sink", "KTABLE-SINK-"),
                parents=parents,
                exchange=topic,
                key=key,
                value=value,
                partitioner=partitioner,
                origin=self.where,
            )
        )
        source = self.graph.add(
            Source(
                name=self.named(f"{suffix}-source", "KTABLE-SOURCE-"),
                topics=(topic,),
                key=key,
                value=value,
                exchange=True,
                origin=self.where,
            )
        )
        return source.name


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

    graph = left.graph
    if right.graph is not graph:
        graph.report(f"{operator}: the other table belongs to another builder.", where, "use one builder for both")
        return KTable(left.typed(key=left.key, value=value))
    if not name and graph.config.explicit_names != "none":
        graph.report(
            f"{operator} has no name for the store of its subscriptions; names are state, so they are not made up.",
            where,
            f"{operator}(..., name='...')",
        )
    join = _Join(
        left,
        right,
        left_key=left.need(left.key, operator=operator, argument="key", where=where),
        left_value=left.need(left.value, operator=operator, argument="value", where=where),
        right_key=right.need(right.key, operator=operator, argument="key", where=where),
        right_value=right.need(right.value, operator=operator, argument="value", where=where),
        kind=kind,
        name=name,
        where=where,
    )
    _check_foreign_key(foreign_key, right, operator=operator, where=where)
    ask_for_old_values(graph, right.node, force=True)
    ask_for_old_values(graph, left.node, force=True)
    arriving = join.subscribe(foreign_key)
    answers = join.answer(arriving)
    returning = join.send_back(answers)
    joined = join.resolve(returning, joiner)
    return _result(join, joined, value, store, operator=operator)


def _check_foreign_key(foreign_key: Callable[[Any, Any], Any], right: Point, *, operator: str, where: Origin) -> None:
    """Reports a foreign key that is not of the type of the other table's keys, if both types are known."""
    asked = serde_for(returned(foreign_key))
    if asked is not None and asked.name != right.key.name and not isinstance(right.key, Unknown):
        right.graph.report(
            f"{operator}: the foreign key is {asked.name}, keys of the other table are {right.key.name}; they must be"
            " of one type.",
            where,
            f"return what the other table has as its key ({right.key.name})",
        )


def _result(join: _Join, joined: str, value: Known, store: Stored, *, operator: str) -> KTable[Any, Any]:
    """The table of the results."""
    from deltaworks.dsl.materialize import table_source

    name = join.named("result", "KTABLE-FK-JOIN-OUTPUT-")
    kept = Materialized.of(store)
    with_name = replace(kept, name=join.graph.store_name(kept.name, "KTABLE-FK-JOIN-OUTPUT-"))
    at = replace(join.left, node=joined, value=value, rekeyed=False)
    table: KTable[Any, Any] = table_source(at, name, kept, with_name, operator=operator, where=join.where)
    return table


def to_the_asking_task(_exchange: str, _key: object, value: Answer, _partitions: int) -> int:
    """An answer goes where the row lives that asked, which need not be where its key would go."""
    return value.task
