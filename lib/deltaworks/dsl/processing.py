"""From a supplier of processors to a node: its checks, its stores, the types that its class declares."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, get_args, get_origin

from deltaworks.dsl.graph import Graph
from deltaworks.dsl.mistakes import named
from deltaworks.dsl.point import Point, Typed, Unknown
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
    fits = check_supplier(graph, supplier, Processor, operator="process", where=where)
    node = ProcessorNode(
        name=name or graph.next_name("KSTREAM-PROCESSOR-"),
        parents=(at.node,),
        supplier=supplier,
        connected=connected_stores(graph, supplier, stores, operator="process", where=where),
        origin=where,
    )
    if not fits:
        told = Unknown("process", where, why="")
        return at.then(node, key=told, value=told, rekeyed=True)
    new_key, new_value = forwarded_types(supplier)
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
    fits = check_supplier(graph, supplier, FixedKeyProcessor, operator="process_values", where=where)
    node = FixedKeyProcessorNode(
        name=name or graph.next_name("KSTREAM-PROCESSVALUES-"),
        parents=(at.node,),
        supplier=supplier,
        connected=connected_stores(graph, supplier, stores, operator="process_values", where=where),
        origin=where,
    )
    _, new_value = forwarded_types(supplier)
    if not fits:
        return at.then(node, value=Unknown("process_values", where, why=""))
    known = at.settle(value, new_value, operator="process_values", argument="value", where=where)
    return at.then(node, value=known)


def own_stores(supplier: Callable[[], Any]) -> tuple[StoreBuilder[Any], ...]:
    """The stores that a supplier brings along, as its attribute `stores` (KIP-401)."""
    stores = getattr(supplier, "stores", ())
    return tuple(stores() if callable(stores) else stores)


def connected_stores(
    graph: Graph, supplier: Callable[[], Any], names: Sequence[Any], *, operator: str, where: Origin
) -> tuple[str, ...]:
    """The stores that a processor may use; those that are declared in its call or by its supplier are added."""
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
    for store in (*(given for given in names if isinstance(given, StoreBuilder)), *own_stores(supplier)):
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
) -> bool:
    """Whether it is a supplier, which makes a new object at each call; reports anything else.

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
        return False
    try:
        made, again = supplier(), supplier()
    except Exception as error:
        hint = f"class Name({kinds[0].__name__}[...]): ..., then {operator}(Name); with arguments: lambda: Name(...)"
        graph.report(f"{operator} could not make a {wanted}: {type(error).__name__}: {error}.", where, hint)
        return False
    if not isinstance(made, kinds):
        graph.report(
            f"{operator} needs a supplier that makes a {wanted}, but got one that makes {named(made)}.",
            where,
            f"class {type(made).__name__}({kinds[0].__name__}[...])",
        )
        return False
    if made is again:
        graph.report(
            f"{operator}: the supplier returns the same object each time; tasks cannot share a processor.",
            where,
            f"return a new {type(made).__name__} from each call",
        )
    return True


def makes_fixed_keys(supplier: Callable[[], Any]) -> bool:
    """Whether a supplier makes a `FixedKeyProcessor`; False if it fails, which `check_supplier` reports."""
    try:
        return isinstance(supplier(), FixedKeyProcessor)
    except Exception:
        return False


def forwarded_types(supplier: Callable[[], Any]) -> tuple[Any, Any]:
    """`(KOut, VOut)` as the processors' class declares it, `(None, VOut)` if it keeps keys; Nones if it does not."""
    made = supplier if inspect.isclass(supplier) else returned(supplier)
    for base in _bases(made):
        arguments = get_args(base)
        if get_origin(base) is Processor and len(arguments) == 4:
            return arguments[2], arguments[3]
        if get_origin(base) in (FixedKeyProcessor, ValueTransformer) and len(arguments) == 3:
            return None, arguments[2]
    return None, None


def _bases(made: Any) -> Iterable[Any]:
    if get_origin(made) is not None:
        yield made
        made = get_origin(made)
    if inspect.isclass(made):
        for each in made.__mro__:
            yield from getattr(each, "__orig_bases__", ())
