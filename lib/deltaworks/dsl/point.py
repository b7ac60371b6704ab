"""A point of a topology under construction, and what is known there about the types of keys and values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, get_args

from deltaworks.dsl.graph import Graph
from deltaworks.dsl.likely import likely_result
from deltaworks.serdes import Serde, serde_for
from deltaworks.serdes.base import is_serde
from deltaworks.serdes.inference import Untold, contradicts, is_open, is_windowed, spelled
from deltaworks.topology.nodes import AnyNode
from deltaworks.topology.nodes.base import Origin

if TYPE_CHECKING:
    from typing_extensions import TypeForm

T = TypeVar("T")

Typed: TypeAlias = "Serde[T] | TypeForm[T]"
"""How a user names a type: by a serde, or by the type itself (`str`, `Order`), which stands for its usual serde.
`Optional[Order]` stands for the serde of `Order`: None never becomes bytes."""


@dataclass(frozen=True)
class Unknown:
    """The type of a key or value that a function makes without declaring its type."""

    operator: str
    where: Origin
    why: str
    """Empty: already reported."""
    remedy: Callable[[], str] = str
    """Says what to do; asked only if somebody needs the type."""

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
        here = self.key if argument == "key" else self.value
        if given is None and is_windowed(hinted) and hinted == here.type:
            return here  # the kind of its windows, which the type does not say
        takes = (self.key.type, self.value.type)
        return settle(self.graph, given, hinted, operator=operator, argument=argument, where=where, takes=takes)

    def key_or(self, given: Typed[Any] | None, *, operator: str, where: Origin) -> Known:
        """The serde given for the key, else the one known here."""
        return self.key if given is None else self.settle(given, None, operator=operator, argument="key", where=where)

    def value_or(self, given: Typed[Any] | None, *, operator: str, where: Origin) -> Known:
        """The serde given for the value, else the one known here."""
        if given is None:
            return self.value
        return self.settle(given, None, operator=operator, argument="value", where=where)

    def need(self, known: Known, *, operator: str, argument: str, where: Origin) -> Serde[Any]:
        """A serde; reports an unknown type as a problem of the topology, once for all operators that need it."""
        if isinstance(known, Unknown) and known.why:
            self.graph.report_untyped(
                (known.operator, known.where, argument),
                f"{operator} needs the type of the {argument}, but {known.operator} at {known.where} {known.why}.",
                where,
                known.remedy(),
            )
        return known


def settle(
    graph: Graph,
    given: Typed[Any] | None,
    hinted: Any,
    *,
    operator: str,
    argument: str,
    where: Origin,
    takes: tuple[Any, ...] = (),
) -> Known:
    """The serde that was given, else the one that a function's return annotation asks for, else unknown.

    Args:
        takes: the types of the key and of the value that the function gets.
    """
    if given is None:
        return serde_for(hinted) or _unknown(operator, argument, where, hinted, takes)
    name = spelled(given)
    if isinstance(given, type) and is_serde(given):
        what, hint = f"{operator}: {argument}={name} is the class of a serde, not a serde.", f"{argument}={name}(...)"
        graph.report(what, where, hint)
        return Unknown(operator, where, why="")
    serde = given if is_serde(given) else serde_for(given)
    if serde is None:
        graph.report(f"{operator}: there is no serde for {argument}={name}.", where, _serde_of(given))
        return Unknown(operator, where, why="")
    if contradicts(hinted, serde.type):
        of = "class declares" if operator in _CLASSES else "function returns"
        graph.report(
            f"{operator}: {argument}={name}, but its {of} {spelled(hinted)}.",
            where,
            f"{argument}={spelled(hinted)}, or leave {argument}= out",
        )
    return serde


_CLASSES = {
    "process": "class Name(Processor[str, Order, str, int])",
    "process_values": "class Name(FixedKeyProcessor[str, Order, int])",
    "transform_values": "class Name(ValueTransformer[str, Order, int])",
}
"""Operators that take a class of the user's -> such a class with its types."""


def _serde_of(given: Any) -> str:
    """The hint for a type that has no serde."""
    if is_windowed(given):
        inner = f"serde_for({spelled(get_args(given)[0])})" if get_args(given) else "String()"
        return (
            f"TimeWindowed({inner}, windows) for keys of time windows, SessionWindowed({inner}) for those of sessions"
        )
    return "give a msgspec.Struct, a dataclass, a builtin type, or a serde of your own"


def _unknown(operator: str, argument: str, where: Origin, hinted: Any, takes: tuple[Any, ...]) -> Unknown:
    if hinted is NoneType:
        remedy = f"return the {argument} from that function"
        return Unknown(operator, where, "has a function that returns None", lambda: remedy)
    if not is_open(hinted) and not isinstance(hinted, Untold):
        why = f"makes {spelled(hinted)}, for which there is no serde"
        return Unknown(operator, where, why, lambda: f"{operator}(..., {argument}=...): {_serde_of(hinted)}")
    if operator in _CLASSES:
        why = "does not say what its class makes"
        return Unknown(operator, where, why, lambda: f"give it types: {_CLASSES[operator]}")
    told = hinted if isinstance(hinted, Untold) else Untold(None)
    return Unknown(operator, where, told.why, lambda: _how_to_tell(operator, argument, told, takes))


def _how_to_tell(operator: str, argument: str, told: Untold, takes: tuple[Any, ...]) -> str:
    """What to write where a function does not say what it returns."""
    if told.annotatable:
        annotated = f"def {told.annotatable}(...) -> str: ..., with the type that it returns"
        return f"{annotated}; or {operator}(..., {argument}=str)"
    by_key = operator in _BY_KEY or operator.endswith("_with_key")
    likely = told.part(likely_result(told.function, takes if by_key else takes[1:]))
    if serde_for(likely):
        return f"{operator}(..., {argument}={spelled(likely)})"
    return f"{operator}(..., {argument}=str), with the type that it returns"


_BY_KEY = ("map", "flat_map", "select_key", "group_by")
"""Operators whose function gets the key and the value."""
