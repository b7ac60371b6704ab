"""A point of a topology under construction, and what is known there about the types of keys and values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from deltaworks.dsl.graph import Graph
from deltaworks.serdes import Serde, serde_for
from deltaworks.topology.nodes import AnyNode
from deltaworks.topology.nodes.base import Origin

T = TypeVar("T")

Typed: TypeAlias = Serde[T] | type[T]
"""How a user names a type: by a serde, or by the type itself (`str`, `Order`), which stands for its usual serde."""


@dataclass(frozen=True)
class Unknown:
    """The type of a key or value that a function makes without declaring its type."""

    operator: str
    where: Origin
    why: str = "does not say what its function returns"
    """Empty: already reported."""
    remedy: str = "annotate what that function returns"

    @property
    def name(self) -> str:
        """Not the name of a serde."""
        return "unknown"

    @property
    def type(self) -> Any:
        """Not a type."""
        return None

    def serialize(self, value: object) -> bytes:
        """Never called: a topology that needs these bytes is refused."""
        raise NotImplementedError(self.operator)

    def deserialize(self, data: bytes) -> object:
        """Never called: a topology that needs these bytes is refused."""
        raise NotImplementedError(self.operator)


Known: TypeAlias = Serde[Any] | Unknown


@dataclass(frozen=True)
class Point:
    """The output of one node."""

    graph: Graph
    node: str
    key: Known
    value: Known
    rekeyed: bool = False
    """The key may have changed since the last exchange, so an operator that works by key needs another one."""

    def then(
        self, node: AnyNode, *, key: Known | None = None, value: Known | None = None, rekeyed: bool = False
    ) -> Point:
        """The output of a node that is connected here; keys and values are those of this point unless given."""
        self.graph.add(node)
        return replace(
            self, node=node.name, key=key or self.key, value=value or self.value, rekeyed=self.rekeyed or rekeyed
        )

    def typed(self, *, key: Known, value: Known) -> Point:
        """The same output with these types."""
        return replace(self, key=key, value=value)

    def settle(self, given: Typed[Any] | None, hinted: Any, *, operator: str, argument: str, where: Origin) -> Known:
        """See `settle`."""
        return settle(self.graph, given, hinted, operator=operator, argument=argument, where=where)

    def key_or(self, given: Typed[Any] | None, *, operator: str, where: Origin) -> Known:
        """The serde given for the key, else the one known here."""
        return self.key if given is None else self.settle(given, None, operator=operator, argument="key", where=where)

    def value_or(self, given: Typed[Any] | None, *, operator: str, where: Origin) -> Known:
        """The serde given for the value, else the one known here."""
        if given is None:
            return self.value
        return self.settle(given, None, operator=operator, argument="value", where=where)

    def need(
        self, known: Known, *, operator: str, argument: str, where: Origin, keyword: str | None = None
    ) -> Serde[Any]:
        """A serde; reports an unknown type as a problem of the topology.

        Args:
            known: What is known.
            operator: The operator that needs it.
            argument: `key` or `value`.
            where: The user's line.
            keyword: The operator's argument for the type; None: as the argument.
        """
        if isinstance(known, Unknown) and known.why:
            here = "there or here" if keyword in (None, argument) else f"there, or {keyword}=... here"
            self.graph.report(
                f"{operator} needs the type of the {argument}, but {known.operator} at {known.where} {known.why}.",
                where,
                f"{known.remedy}, or pass {argument}=..., such as {argument}=Json(Order), {here}",
            )
        return known


def settle(
    graph: Graph, given: Typed[Any] | None, hinted: Any, *, operator: str, argument: str, where: Origin
) -> Known:
    """The serde that was given, else the one that a function's return annotation asks for, else unknown."""
    if given is None:
        return serde_for(hinted) or _unknown(operator, where)
    is_serde = hasattr(given, "serialize") and hasattr(given, "deserialize")
    if is_serde and not isinstance(given, type):
        return given
    name = getattr(given, "__name__", repr(given))
    if is_serde:
        what, hint = f"{operator}: {argument}={name} is the class of a serde, not a serde.", f"{argument}={name}(...)"
    elif serde := serde_for(given):
        return serde
    else:
        what = f"{operator}: there is no serde for {argument}={name}."
        hint = "give a msgspec.Struct, a dataclass, a builtin type, or a serde of your own"
    graph.report(what, where, hint)
    return Unknown(operator, where, why="")


def _unknown(operator: str, where: Origin) -> Unknown:
    match operator:
        case "process" | "process_values" | "transform_values":
            remedy = "give its class the types: class Name(Processor[str, Order, str, int])"
            if operator == "process_values":
                remedy = "give its class the types: class Name(FixedKeyProcessor[str, Order, int])"
            if operator == "transform_values":
                remedy = "give its class the types: class Name(ValueTransformer[str, Order, int])"
            return Unknown(operator, where, "does not say what its class makes", remedy)
        case _:
            return Unknown(operator, where)
