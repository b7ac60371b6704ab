"""The joins of a `KStream`: with a table, with another stream, with a global table.

They have their own class only because they fill a file; users find them on `KStream`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from deltaworks.dsl.external import ExternalSinks
from deltaworks.dsl.global_ktable import GlobalKTable
from deltaworks.dsl.graph import call_site
from deltaworks.dsl.join_arguments import check_stream_join
from deltaworks.dsl.joins import Join, join_global_table, join_table
from deltaworks.dsl.ktable import KTable
from deltaworks.dsl.mistakes import Handle, check_function, check_shape
from deltaworks.dsl.point import Point, Typed
from deltaworks.dsl.stream_joins import join_streams
from deltaworks.serdes.inference import returned
from deltaworks.topology.join_windows import JoinWindows

if TYPE_CHECKING:
    from deltaworks.dsl.kstream import KStream

K = TypeVar("K")
V = TypeVar("V")
VO = TypeVar("VO")
VR = TypeVar("VR")
VT = TypeVar("VT")
KG = TypeVar("KG")
VG = TypeVar("VG")

_KINDS: dict[str, Literal["inner", "left", "outer"]] = {"join": "inner", "left_join": "left", "outer_join": "outer"}
"""Operator, without `_with_key` -> which records without a partner it forwards."""


class KStreamJoins(ExternalSinks, Handle, Generic[K, V]):
    """The joins of a `KStream`."""

    def __init__(self, at: Point) -> None:
        self.at = at

    @overload
    def join(
        self,
        other: KTable[K, VT],
        joiner: Callable[[V, VT], VR],
        *,
        value: Typed[VR] | None = None,
        grace: timedelta | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...

    @overload
    def join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V, VO], VR],
        windows: JoinWindows,
        *,
        value: Typed[VR] | None = None,
        store: str = "",
        name: str | None = None,
    ) -> KStream[K, VR]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[KG, VG],
        joiner: Callable[[V, VG], VR],
        *,
        selector: Callable[[K, V], KG | None],
        value: Typed[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...

    def join(
        self,
        other: KTable[K, Any] | KStream[K, Any] | GlobalKTable[Any, Any],
        joiner: Callable[[V, Any], VR],
        windows: JoinWindows | None = None,
        *,
        selector: Callable[[K, V], Any] | None = None,
        value: Typed[VR] | None = None,
        grace: timedelta | None = None,
        store: str = "",
        name: str | None = None,
    ) -> KStream[K, VR]:
        """Adds a table's row, or another stream's records of the same key; a record without a partner is dropped.

        - `KTable`: the row of the same key. Only the stream triggers results. The row is the current one; in a
          versioned table, the one as of the record's timestamp.
        - `KStream`: each record that is near in time, from whichever side it comes; every pair is a result. A result
          has the larger of both timestamps and the headers of the record that came later. A late record still joins
          what the other side has kept.
        - `GlobalKTable`: the row of the key that `selector` computes. Only the stream triggers results.

        Null values are dropped. Null keys are dropped too, but with a global table only null lookup keys. Before a join
        with a table or a stream, a side whose key may have changed makes an exchange.

        Shape: `KStream[K, V] + KTable[K, VT] -> KStream[K, VR]`; 1 record -> 0 or 1, or one per partner in a stream.
        Args:
            other: a table or a stream has the same type of key and, without exchanges, as many partitions.
            joiner: `(value, row or other value) -> value`.
            windows: for a stream: how much earlier and later than this stream's record the other may be.
            selector: for a global table: `(key, value) -> lookup key`; it is called for null values too.
            value: type or serde of the new value, if the joiner has no return annotation.
            grace: for a versioned table: how long, in stream time, a record waits for rows that come out of order; at
                most the history of the table. A record that is already older is joined at once.
            store: for a stream: prefix of the names of its stores; part of the pipeline's state, so keep it.
            name: name of the node, and of the exchange and the buffer if there is one; for a stream, a prefix.
        State: with a table, that of the table, and with `grace` the records that wait. With a stream, the records of
            both sides, for `before + after + grace`; none if all three are 0, so nothing ever joins then.
        Source: `KStream#join`, `Joined#withGracePeriod`, `StreamJoined`; differs: no.
        """
        return self._join("join", other, joiner, windows, selector, value, grace, store, name)

    @overload
    def join_with_key(
        self,
        other: KTable[K, VT],
        joiner: Callable[[K, V, VT], VR],
        *,
        value: Typed[VR] | None = None,
        grace: timedelta | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...

    @overload
    def join_with_key(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V, VO], VR],
        windows: JoinWindows,
        *,
        value: Typed[VR] | None = None,
        store: str = "",
        name: str | None = None,
    ) -> KStream[K, VR]: ...

    @overload
    def join_with_key(
        self,
        other: GlobalKTable[KG, VG],
        joiner: Callable[[K, V, VG], VR],
        *,
        selector: Callable[[K, V], KG | None],
        value: Typed[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...

    def join_with_key(
        self,
        other: KTable[K, Any] | KStream[K, Any] | GlobalKTable[Any, Any],
        joiner: Callable[[K, V, Any], VR],
        windows: JoinWindows | None = None,
        *,
        selector: Callable[[K, V], Any] | None = None,
        value: Typed[VR] | None = None,
        grace: timedelta | None = None,
        store: str = "",
        name: str | None = None,
    ) -> KStream[K, VR]:
        """`join` with a joiner `(key, value, row or other value) -> value`; the key is that of the stream's record.

        Source: `KStream#join` with a `ValueJoinerWithKey`; differs: no.
        """
        return self._join("join_with_key", other, joiner, windows, selector, value, grace, store, name)

    @overload
    def left_join(
        self,
        other: KTable[K, VT],
        joiner: Callable[[V, VT | None], VR],
        *,
        value: Typed[VR] | None = None,
        grace: timedelta | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...

    @overload
    def left_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V, VO | None], VR],
        windows: JoinWindows,
        *,
        value: Typed[VR] | None = None,
        store: str = "",
        name: str | None = None,
    ) -> KStream[K, VR]: ...

    @overload
    def left_join(
        self,
        other: GlobalKTable[KG, VG],
        joiner: Callable[[V, VG | None], VR],
        *,
        selector: Callable[[K, V], KG | None],
        value: Typed[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...

    def left_join(
        self,
        other: KTable[K, Any] | KStream[K, Any] | GlobalKTable[Any, Any],
        joiner: Callable[[V, Any], VR],
        windows: JoinWindows | None = None,
        *,
        selector: Callable[[K, V], Any] | None = None,
        value: Typed[VR] | None = None,
        grace: timedelta | None = None,
        store: str = "",
        name: str | None = None,
    ) -> KStream[K, VR]:
        """`join` that also forwards records without a partner; the joiner gets None for what they lack.

        - `KTable`: a null key finds no row (with `grace` it is an error).
        - `KStream`: a record of this stream is forwarded, with its own timestamp, once no record of the other can join
          it: once the largest timestamp of both sides has passed its own by more than `after + grace`. The join checks
          this when a record advances that time. A record of this stream without a key is forwarded at once.
        - `GlobalKTable`: a record without a lookup key finds no row.

        Null values are dropped.

        Shape: `KStream[K, V] + KTable[K, VT] -> KStream[K, VR]`; 1 record -> 1, or one per partner in a stream.
        Args:
            other: as in `join`.
            joiner: `(value, row or other value or None) -> value`.
            windows: as in `join`.
            selector: as in `join`.
            value: as in `join`.
            grace: as in `join`.
            store: as in `join`.
            name: as in `join`.
        State: as `join`; with a stream, also the records of this one that have no partner yet.
        Source: `KStream#leftJoin`; differs: with streams, no pause between two looks unless the builder has
            `emit_interval`.
        """
        return self._join("left_join", other, joiner, windows, selector, value, grace, store, name)

    @overload
    def left_join_with_key(
        self,
        other: KTable[K, VT],
        joiner: Callable[[K, V, VT | None], VR],
        *,
        value: Typed[VR] | None = None,
        grace: timedelta | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...

    @overload
    def left_join_with_key(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V, VO | None], VR],
        windows: JoinWindows,
        *,
        value: Typed[VR] | None = None,
        store: str = "",
        name: str | None = None,
    ) -> KStream[K, VR]: ...

    @overload
    def left_join_with_key(
        self,
        other: GlobalKTable[KG, VG],
        joiner: Callable[[K, V, VG | None], VR],
        *,
        selector: Callable[[K, V], KG | None],
        value: Typed[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...

    def left_join_with_key(
        self,
        other: KTable[K, Any] | KStream[K, Any] | GlobalKTable[Any, Any],
        joiner: Callable[[K, V, Any], VR],
        windows: JoinWindows | None = None,
        *,
        selector: Callable[[K, V], Any] | None = None,
        value: Typed[VR] | None = None,
        grace: timedelta | None = None,
        store: str = "",
        name: str | None = None,
    ) -> KStream[K, VR]:
        """`left_join` with a joiner `(key, value, row or other value or None) -> value`.

        Source: `KStream#leftJoin` with a `ValueJoinerWithKey`; differs: as `left_join`.
        """
        return self._join("left_join_with_key", other, joiner, windows, selector, value, grace, store, name)

    @overload  # type: ignore[misc]  # a single one: any other call gets an error of ours
    def outer_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V | None, VO | None], VR],
        windows: JoinWindows,
        *,
        value: Typed[VR] | None = None,
        store: str = "",
        name: str | None = None,
    ) -> KStream[K, VR]: ...

    def outer_join(
        self,
        other: KTable[K, Any] | KStream[K, Any] | GlobalKTable[Any, Any],
        joiner: Callable[[V | None, Any], VR],
        windows: JoinWindows | None = None,
        *,
        selector: Callable[[K, V], Any] | None = None,
        value: Typed[VR] | None = None,
        grace: timedelta | None = None,
        store: str = "",
        name: str | None = None,
    ) -> KStream[K, VR]:
        """`left_join` of two streams, for both sides: records of either one without a partner are forwarded too.

        Shape: `KStream[K, V] + KStream[K, VO] -> KStream[K, VR]`; 1 record -> 1 or more.
        Args:
            other: a stream; tables have no outer join with a stream.
            joiner: `(value or None, other value or None) -> value`; never None twice.
            windows: as in `join`.
            selector: not for streams.
            value: as in `join`.
            grace: not for streams; it is part of the windows.
            store: as in `join`.
            name: as in `join`.
        State: as `join`, and the records of both sides that have no partner yet.
        Source: `KStream#outerJoin`; differs: as `left_join`.
        """
        return self._join("outer_join", other, joiner, windows, selector, value, grace, store, name)

    @overload  # type: ignore[misc]  # a single one: any other call gets an error of ours
    def outer_join_with_key(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V | None, VO | None], VR],
        windows: JoinWindows,
        *,
        value: Typed[VR] | None = None,
        store: str = "",
        name: str | None = None,
    ) -> KStream[K, VR]: ...

    def outer_join_with_key(
        self,
        other: KTable[K, Any] | KStream[K, Any] | GlobalKTable[Any, Any],
        joiner: Callable[[K, V | None, Any], VR],
        windows: JoinWindows | None = None,
        *,
        selector: Callable[[K, V], Any] | None = None,
        value: Typed[VR] | None = None,
        grace: timedelta | None = None,
        store: str = "",
        name: str | None = None,
    ) -> KStream[K, VR]:
        """`outer_join` with a joiner `(key, value or None, other value or None) -> value`.

        Source: `KStream#outerJoin` with a `ValueJoinerWithKey`; differs: as `left_join`.
        """
        return self._join("outer_join_with_key", other, joiner, windows, selector, value, grace, store, name)

    def _join(
        self,
        operator: str,
        other: KTable[K, Any] | KStream[K, Any] | GlobalKTable[Any, Any],
        joiner: Callable[..., VR],
        windows: JoinWindows | None,
        selector: Callable[[K, V], Any] | None,
        value: Typed[VR] | None,
        grace: timedelta | None,
        store: str,
        name: str | None,
    ) -> KStream[K, VR]:
        from deltaworks.dsl.kstream import KStream

        where, graph = call_site(), self.at.graph
        given = {"windows": windows, "selector": selector, "grace": grace, "store": store}
        check_stream_join(graph, other, given, operator=operator, where=where)
        names = "value, other" if windows is not None else "value, row"
        check_shape(graph, joiner, "joiner", names, operator, where)
        join = Join(
            operator=operator,
            kind=_KINDS[operator.removesuffix("_with_key")],
            joiner=joiner if operator.endswith("_with_key") else lambda _, left, right: joiner(left, right),
            value=self.at.settle(value, returned(joiner), operator=operator, argument="value", where=where),
            name=name,
            where=where,
        )
        match other:
            case KTable():
                return KStream(join_table(self.at, other, join, grace=grace))
            case GlobalKTable():
                assert selector is not None, operator
                check_function(graph, selector, "selector(key, value)", operator=operator, where=where)
                return KStream(join_global_table(self.at, other, join, selector=selector))
            case KStream():
                assert windows is not None, operator
                return KStream(join_streams(self.at, other.at, join, windows=windows, store=store))
