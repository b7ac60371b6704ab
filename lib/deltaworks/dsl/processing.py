"""From a supplier of processors to a node: its checks, its stores, the types that its class declares."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, get_args, get_origin

from deltaworks.dsl.graph import Graph
from deltaworks.dsl.mistakes import named
from deltaworks.dsl.point import Point, Typed
from deltaworks.dsl.state_stores import StoreBuilder, example
from deltaworks.serdes.inference import returned
from deltaworks.topology.nodes import FixedKeyProcessorNode, ProcessorNode
from deltaworks.topology.nodes.base import Origin
from deltaworks.topology.processors import FixedKeyProcessor, Processor, ValueTransformer


def process(
    at: Point,
    supplier: Callable[[], Processor[Any, Any, Any, Any]],
    stores: Sequence[str | StoreBuilder[Any]],
    *,
    key: Typed[Any] | None,
    value: Typed[Any] | None,
    name: str | None,
    where: Origin,
) -> Point:
    """Connects a processor that may change keys.

    Source: `KStreamImpl#process`; a given name uses up no number.
    """
    graph = at.graph
    made = check_supplier(graph, supplier, Processor, operator="process", where=where)
    node = ProcessorNode(
        name=name or graph.next_name("KSTREAM-PROCESSOR-"),
        parents=(at.node,),
        supplier=supplier,
        connected=connected_stores(graph, supplier, made, stores, operator="process", where=where),
        origin=where,
    )
    new_key, new_value = forwarded_types(supplier, made)
    return at.then(
        node,
        key=at.settle(key, new_key, operator="process", argument="key", where=where),
        value=at.settle(value, new_value, operator="process", argument="value", where=where),
        rekeyed=True,
    )


def process_values(
    at: Point,
    supplier: Callable[[], FixedKeyProcessor[Any, Any, Any]],
    stores: Sequence[str | StoreBuilder[Any]],
    *,
    value: Typed[Any] | None,
    name: str | None,
    where: Origin,
) -> Point:
    """Connects a processor that keeps keys.

    Source: `KStreamImpl#processValues`.
    """
    graph = at.graph
    made = check_supplier(graph, supplier, FixedKeyProcessor, operator="process_values", where=where)
    node = FixedKeyProcessorNode(
        name=name or graph.next_name("KSTREAM-PROCESSVALUES-"),
        parents=(at.node,),
        supplier=supplier,
        connected=connected_stores(graph, supplier, made, stores, operator="process_values", where=where),
        origin=where,
    )
    _, new_value = forwarded_types(supplier, made)
    known = at.settle(value, new_value, operator="process_values", argument="value", where=where)
    return at.then(node, value=known)


def own_stores(supplier: Callable[[], Any], made: Any) -> tuple[StoreBuilder[Any], ...]:
    """The stores that come along as the attribute `stores` (KIP-401) of a supplier, or of the class that it makes."""
    owner = supplier if hasattr(supplier, "stores") and not inspect.isclass(supplier) else made
    if owner is made and not hasattr(type(made), "stores"):
        return ()
    return tuple(owner.stores() if callable(owner.stores) else owner.stores)


def connected_stores(
    graph: Graph, supplier: Callable[[], Any], made: Any, names: Sequence[Any], *, operator: str, where: Origin
) -> tuple[str, ...]:
    """The stores that a processor may use; those that are declared in its call or by the processor are added."""
    connected: dict[str, None] = {}
    for given in names:
        if isinstance(given, str):
            connected[given] = None
        elif not isinstance(given, StoreBuilder):
            graph.report(
                f"{operator}: a store is given by its name or its declaration, but got {named(given)}.",
                where,
                f"{operator}(..., {example()})",
            )
    for store in (*(given for given in names if isinstance(given, StoreBuilder)), *own_stores(supplier, made)):
        add_store(graph, store, where)
        connected[store.name] = None
    return tuple(connected)


def add_store(graph: Graph, store: Any, where: Origin) -> None:
    """Adds a store; adding the same one again changes nothing."""
    if not isinstance(store, StoreBuilder):
        name = getattr(store, "name", store)
        graph.refuse(
            f"a store to be added must be a StoreBuilder, but is {named(store)}.",
            where,
            example(str(name)),
        )
    where = store.origin
    if all(store.spec != spec for spec, _ in graph.stores):
        graph.add_store(store.spec, where)


def check_supplier(
    graph: Graph, supplier: Any, kind: type[Any] | tuple[type[Any], ...], *, operator: str, where: Origin
) -> Any:
    """Calls a supplier, and returns what it made; reports anything that does not make a new object at each call.

    What it made is used for nothing but its class: `lambda: Name(...)` does not say which class that is.

    Returns:
        None if the supplier was reported.
    Source: `ApiUtils#checkSupplier`.
    """
    kinds = kind if isinstance(kind, tuple) else (kind,)
    wanted = " or ".join(each.__name__ for each in kinds)
    if not callable(supplier) or isinstance(supplier, kinds):
        graph.report(
            f"{operator} needs a supplier that makes a {wanted}, but got {named(supplier)}: each task has its own.",
            where,
            f"{operator}({type(supplier).__name__}), the class itself, or a function that returns a new one",
        )
        return None
    try:
        made, again = supplier(), supplier()
    except Exception as error:
        hint = f"class Name({kinds[0].__name__}[...]): ..., then {operator}(Name); with arguments: lambda: Name(...)"
        graph.report(f"{operator} could not make a {wanted}: {type(error).__name__}: {error}.", where, hint)
        return None
    if not isinstance(made, kinds):
        graph.report(
            f"{operator} needs a supplier that makes a {wanted}, but got one that makes {named(made)}.",
            where,
            f"class {type(made).__name__}({kinds[0].__name__}[...])",
        )
        return None
    if made is again:
        graph.report(
            f"{operator}: the supplier returns the same object each time; tasks cannot share a processor.",
            where,
            f"return a new {type(made).__name__} from each call",
        )
        return None
    return made


def forwarded_types(supplier: Callable[[], Any], made: Any) -> tuple[Any, Any]:
    """`(KOut, VOut)` as the class of the processors declares it, `(None, VOut)` if it keeps keys; Nones if it does not.

    A supplier's return annotation says more than the class if that is generic.
    """
    for told in (returned(supplier), type(made)):
        if arguments := _arguments(told, Processor):
            return arguments[2], arguments[3]
        if arguments := _arguments(told, FixedKeyProcessor) or _arguments(told, ValueTransformer):
            return None, arguments[2]
    return None, None


def _arguments(told: Any, base: type) -> tuple[Any, ...]:
    """What a type gives for the parameters of one of its bases; empty if it does not derive from it."""
    origin = get_origin(told) or told
    if origin is base:
        return get_args(told)
    given = dict(zip(getattr(origin, "__parameters__", ()), get_args(told), strict=False))
    for parent in vars(origin).get("__orig_bases__", origin.__bases__) if inspect.isclass(origin) else ():
        if arguments := _arguments(parent, base):
            return tuple(given.get(each, each) if isinstance(each, TypeVar) else each for each in arguments)
    return ()
