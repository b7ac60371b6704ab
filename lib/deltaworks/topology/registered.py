"""Formats of a schema registry in a plan: records of topics name their schema, values of stores and exchanges do not.

A value in a store outlives the registry, so it is kept as what it is in Python (`serdes.packed`); likewise between two
stages. A key keeps its bytes everywhere, because they decide its partition: where a stage reads an exchange and a
topic, the same key has to be in the same task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from deltaworks.serdes.base import Serde, is_serde
from deltaworks.serdes.in_registry import InRegistry
from deltaworks.serdes.packed import stored
from deltaworks.serdes.schemas import Schemas, bound, changed
from deltaworks.topology.nodes import AnyNode
from deltaworks.topology.nodes.foreign_keys import ForeignKeyResolve, ForeignKeySubscribe
from deltaworks.topology.nodes.repartition import ExchangeSink
from deltaworks.topology.nodes.sinks import ExtractedTopicSink, TopicSink
from deltaworks.topology.nodes.sources import Source
from deltaworks.topology.plan import Plan
from deltaworks.topology.stages import StoreSpec

_SERDES = ("key", "value", "other_key")
"""The fields of nodes that hold serdes."""


def with_stored_values(plan: Plan) -> Plan:
    """The plan whose stores and exchanges hold values without the header of a registry."""
    return plan.changed(_node_stored, _store_stored)


def bound_plan(plan: Plan, schemas: Schemas) -> Plan:
    """The plan whose serdes know where schemas are registered.

    Subjects are those of the topics. Keys of stores and exchanges have the subject of a topic with the same serde, else
    that of Kafka Streams' internal topic: `NAME-by-user-repartition-key`, `NAME-counts-changelog-key`. Where a function
    names the topic, the subject is that of the record.

    Args:
        plan: it is not changed.
        schemas: where they are.
    """
    known = list(_keys_of_topics(plan))

    def bind(serde: Serde[Any], topic: str | None, is_key: bool) -> Serde[Any]:
        return bound(serde, schemas, topic, is_key=is_key)

    def bind_inner(serde: Serde[Any], name: str, is_key: bool) -> Serde[Any]:
        topic = next((topic for other, topic in known if other == serde), f"{plan.name}-{name}")
        return bind(serde, topic, is_key)

    def node(each: AnyNode) -> AnyNode:
        match each:
            case Source() if not each.exchange:
                return _rebound(each, bind, each.topics[0] if len(each.topics) == 1 else None)
            case TopicSink():
                return _rebound(each, bind, each.topic)
            case ExtractedTopicSink():
                return _rebound(each, bind, None)
            case Source():
                return _rebound(each, bind_inner, each.topics[0])
            case ExchangeSink():
                return _rebound(each, bind_inner, each.exchange)
            case _:
                return _rebound(each, bind_inner, each.name)

    def store(spec: StoreSpec) -> StoreSpec:
        return replace(spec, key=bind_inner(spec.key, f"{spec.name}-changelog", True))

    return plan.changed(node, store)


@dataclass(frozen=True)
class Use:
    """A format of a plan whose records name their schema."""

    serde: InRegistry[Any]
    """Bound."""
    topics: tuple[str, ...]
    """Where its records are read; empty: they are written, or a key has its bytes."""
    of: str
    """Such as `values of topic 'orders'`."""

    @property
    def subject(self) -> str:
        """Of its schema."""
        return self.serde.registered_as or ""


def uses(plan: Plan) -> list[Use]:
    """The formats of a bound plan whose records name their schema; one per subject and schema, first those read.

    Args:
        plan: as `bound_plan` returns it.
    """
    found: dict[tuple[bool, str, str], Use] = {}
    for node in _all_nodes(plan):
        topics = node.topics if isinstance(node, Source) and not node.exchange else ()
        where = _where(node)
        for name in _SERDES:
            if is_serde(serde := getattr(node, name, None)):
                for each in _registered(serde):
                    use = Use(each, topics, f"{'values' if name == 'value' else 'keys'} of {where}")
                    found.setdefault((not topics, use.subject, each.writer_schema.fingerprint), use)
    for spec in plan.stores:
        for each in _registered(spec.key):
            use = Use(each, (), f"keys of store '{spec.name}'")
            found.setdefault((True, use.subject, each.writer_schema.fingerprint), use)
    return [found[each] for each in sorted(found, key=lambda key: key[:2])]


def _registered(serde: Serde[Any]) -> Iterator[InRegistry[Any]]:
    """A serde and those inside it, if their records name a schema."""
    found: list[InRegistry[Any]] = []

    def look(each: Any) -> Any:
        if isinstance(each, InRegistry) and each.registry:
            found.append(each)
        return each

    changed(serde, look)
    yield from found


def _where(node: AnyNode) -> str:
    match node:
        case Source() if not node.exchange:
            return f"topic {', '.join(repr(each) for each in node.topics)}"
        case TopicSink():
            return f"topic '{node.topic}'"
        case _:
            return f"'{node.name}'"


def _all_nodes(plan: Plan) -> list[AnyNode]:
    """Those of global tables, too."""
    return [*plan.nodes, *(each for stage in plan.global_stages for each in stage.nodes)]


def _keys_of_topics(plan: Plan) -> Iterator[tuple[Serde[Any], str]]:
    """Serdes of keys, and a topic with such keys: those that are read come first."""
    nodes = _all_nodes(plan)
    yield from (
        (each.key, each.topics[0]) for each in nodes if isinstance(each, Source) and each.topics and not each.exchange
    )
    yield from ((each.key, each.topic) for each in nodes if isinstance(each, TopicSink))


def _node_stored(node: AnyNode) -> AnyNode:
    match node:
        case Source(exchange=True) | ExchangeSink() | ForeignKeySubscribe() | ForeignKeyResolve():
            return replace(node, value=stored(node.value))
        case _:
            return node


def _store_stored(spec: StoreSpec) -> StoreSpec:
    migrate = spec.migrate
    if migrate is not None:
        migrate = stored(migrate[0]), migrate[1]
    return replace(spec, value=stored(spec.value), migrate=migrate)


def _rebound(node: AnyNode, bind: Callable[[Serde[Any], Any, bool], Serde[Any]], where: str | None) -> AnyNode:
    """A node with other serdes, if it has any."""
    found = {each.name: getattr(node, each.name) for each in fields(node) if each.name in _SERDES}
    changes: dict[str, Any] = {
        name: bind(serde, where, name != "value") for name, serde in found.items() if is_serde(serde)
    }
    return replace(node, **changes) if changes else node
