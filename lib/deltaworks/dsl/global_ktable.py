"""Global tables: every task has all of their rows."""

from __future__ import annotations

from typing import Generic, TypeVar

from deltaworks.dsl.mistakes import Handle
from deltaworks.dsl.point import Point
from deltaworks.dsl.shown import handle, stored

K = TypeVar("K")
V = TypeVar("V")


class GlobalKTable(Handle, Generic[K, V]):
    """A table that every task can read as a whole; made by `StreamsBuilder.global_table`.

    A stream looks rows up by any key that it computes, so it needs neither an exchange nor an equal number of
    partitions. Updates of the table trigger nothing.

    >>> from deltaworks import StreamsBuilder
    >>> from deltaworks.testing import TopologyTestDriver
    >>> builder = StreamsBuilder()
    >>> cities = builder.global_table("cities", key=str, value=str, store="cities")
    >>> orders = builder.stream("orders", key=str, value=str)
    >>> places = orders.join(cities, lambda *names: ", ".join(names), selector=lambda _, city: city, value=str)
    >>> places.to("out")
    >>> driver = TopologyTestDriver(builder.build())
    >>> driver.create_input_topic("cities").pipe_input("Utrecht", "NL")
    >>> driver.create_input_topic("orders").pipe_input("order 1", "Utrecht")
    >>> driver.create_output_topic("out").read_key_value()
    ('order 1', 'Utrecht, NL')

    Args:
        at: where its updates come out.
        store: name of its store.
        named: whether the user gave the name.
    """

    def __init__(self, at: Point, store: str, *, named: bool) -> None:
        self.at = at
        self.store = store
        self._named = named

    def __repr__(self) -> str:
        return handle(self, self.at, stored(self.store))

    @property
    def queryable_store_name(self) -> str | None:
        """The name that the user gave its store; None if it was generated.

        Source: `GlobalKTable#queryableStoreName`; differs: no.
        """
        return self.store if self._named else None
