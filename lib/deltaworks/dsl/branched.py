"""Splitting a stream into branches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from deltaworks.dsl.graph import call_site
from deltaworks.dsl.mistakes import Handle, check_function
from deltaworks.dsl.point import Point
from deltaworks.dsl.shown import handle
from deltaworks.topology.nodes import Branch, Passthrough
from deltaworks.topology.nodes.base import Origin

if TYPE_CHECKING:
    from deltaworks.dsl.kstream import KStream

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class BranchedKStream(Handle, Generic[K, V]):
    """A stream that is being split; a handle, made by `split`. End it with `default_branch` or `no_default_branch`.

    >>> from deltaworks import StreamsBuilder
    >>> from deltaworks.testing import TopologyTestDriver
    >>> builder = StreamsBuilder()
    >>> amounts = builder.stream("amounts", key=str, value=int)
    >>> sizes = amounts.split("size").branch(lambda _, amount: amount > 99, name="big").default_branch(name="rest")
    >>> sizes["big"].to("big-amounts")
    >>> driver = TopologyTestDriver(builder.build())
    >>> driver.create_input_topic("amounts").pipe_key_value_list([("ann", 20), ("bob", 200)])
    >>> driver.create_output_topic("big-amounts").read_key_values_to_list()
    [('bob', 200)]
    """

    def __init__(
        self,
        at: Point,
        node: str,
        where: Origin,
        branches: tuple[tuple[str, str, Callable[[Any, Any], bool]], ...] = (),
    ) -> None:
        self.at = at
        self.node = node
        self.where = where
        self.branches = branches

    def __repr__(self) -> str:
        names = ", ".join(name for name, _, _ in self.branches)
        return handle(self, self.at, f"branches: {names or 'none'}; not ended")

    def branch(self, predicate: Callable[[K, V], bool], *, name: str) -> BranchedKStream[K, V]:
        """Adds a branch for the records that match the predicate and that no earlier branch took.

        Args:
            predicate: `(key, value) -> bool`.
            name: name of the branch; its key in the result.

        Source: `BranchedKStream#branch`; differs: `Branched.withFunction` and `withConsumer` are the caller's own code.
        """
        check_function(self.at.graph, predicate, "predicate(key, value)", operator="branch", where=call_site())
        return BranchedKStream(self.at, self.node, self.where, (*self.branches, (name, self._child(name), predicate)))

    def default_branch(self, *, name: str = "default") -> dict[str, KStream[K, V]]:
        """Ends the split; records that no branch took go to the branch `name`.

        Returns:
            The branches by name.

        Source: `BranchedKStream#defaultBranch`; differs: the keys are the bare names of the branches.
        """
        return self._end(name)

    def no_default_branch(self) -> dict[str, KStream[K, V]]:
        """Ends the split; records that no branch took are dropped.

        Returns:
            The branches by name.

        Source: `BranchedKStream#noDefaultBranch`; differs: the keys are the bare names of the branches.
        """
        return self._end(None)

    def _child(self, name: str) -> str:
        self.at.graph.next_name("KSTREAM-BRANCHCHILD-")
        if any(name == taken for taken, _, _ in self.branches):
            self.at.graph.report(f"split has two branches named '{name}'.", call_site(), "name each branch differently")
        return self.node + name

    def _end(self, default: str | None) -> dict[str, KStream[K, V]]:
        from deltaworks.dsl.kstream import KStream

        graph = self.at.graph
        if graph.open_splits.pop(self.node, None) is None:
            graph.refuse(
                f"the split '{self.node}' is ended twice.", call_site(), "keep its branches in a variable and use them"
            )
        names = {name: child for name, child, _ in self.branches}
        default_child = None if default is None else self._child(default)
        if default is not None and default_child is not None:
            names[default] = default_child
        graph.add(
            Branch(
                name=self.node,
                parents=(self.at.node,),
                predicates=tuple(predicate for _, _, predicate in self.branches),
                children=tuple(child for _, child, _ in self.branches),
                default=default_child,
                origin=self.where,
            )
        )
        return Branches(
            (name, KStream(self.at.then(Passthrough(name=child, parents=(self.node,), origin=self.where))))
            for name, child in names.items()
        )


class Branches(dict[str, T]):
    """The branches of a split by name; the error for an unknown name lists the known ones."""

    def __missing__(self, name: str) -> NoReturn:
        raise KeyError(f"the split has no branch {name!r}; it has: {', '.join(map(repr, self)) or 'none'}")
