"""The joins of a `KStream`: with a table, with another stream, with a global table.

They have their own class only because they fill a file; users find them on `KStream`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from deltaworks.dsl.global_ktable import GlobalKTable
from deltaworks.dsl.graph import call_site
from deltaworks.dsl.joins import join_global_table, join_table
from deltaworks.dsl.ktable import KTable
from deltaworks.dsl.mistakes import Handle, check_function, check_shape, need_handle, need_value
from deltaworks.dsl.point import Point, Typed
from deltaworks.dsl.stream_joins import StreamJoin, join_streams
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


class KStreamJoins(Handle, Generic[K, V]):
    """The joins of a `KStream`."""

    def __init__(self, at: Point) -> None:
        self.at = at

    def join(
        self,
        table: KTable[K, VT],
        joiner: Callable[[V, VT], VR],
        *,
        value: Typed[VR] | None = None,
        grace: timedelta | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]:
        """Adds the table's row of the same key; a record without a row is dropped.

        Only the stream triggers results. The row is the current one; in a versioned table, the one as of the record's
        timestamp. Null keys and null values are dropped. Makes an exchange first if the key may have changed.

        Shape: `KStream[K, V] + KTable[K, VT] -> KStream[K, VR]`; 1 record -> 0 or 1.
        Args:
            table: has the same type of key and, without an exchange, as many partitions.
            joiner: `(value, row) -> value`.
            value: type or serde of the new value, if the joiner has no return annotation.
            grace: how long, in stream time, a record waits for rows of a versioned table that come out of order; at
                most the history of the table. A record that is already older is joined at once.
            name: name of the node, and of the exchange and the buffer if there is one.
        State: that of the table; with `grace`, also the records that wait.
        Source: `KStream#join(KTable)`, `Joined#withGracePeriod`; differs: no.
        """
        return self._join(
            table, lambda _, left, right: joiner(left, right), joiner, "inner", "join", value, grace, name
        )

    def join_with_key(
        self,
        table: KTable[K, VT],
        joiner: Callable[[K, V, VT], VR],
        *,
        value: Typed[VR] | None = None,
        grace: timedelta | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]:
        """`join` with a joiner `(key, value, row) -> value`.

        Source: `KStream#join(KTable, ValueJoinerWithKey)`; differs: no.
        """
        return self._join(table, joiner, joiner, "inner", "join_with_key", value, grace, name)

    def left_join(
        self,
        table: KTable[K, VT],
        joiner: Callable[[V, VT | None], VR],
        *,
        value: Typed[VR] | None = None,
        grace: timedelta | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]:
        """Adds the table's row of the same key; the joiner gets None for a record without a row.

        Only the stream triggers results. The row is the current one; in a versioned table, the one as of the record's
        timestamp. A null key finds no row (with `grace` it is an error); a null value is dropped.

        Shape: `KStream[K, V] + KTable[K, VT] -> KStream[K, VR]`; 1 record -> 1.
        Args:
            table: has the same type of key and, without an exchange, as many partitions.
            joiner: `(value, row or None) -> value`.
            value: type or serde of the new value, if the joiner has no return annotation.
            grace: as in `join`.
            name: name of the node, and of the exchange and the buffer if there is one.
        State: that of the table; with `grace`, also the records that wait.
        Source: `KStream#leftJoin(KTable)`, `Joined#withGracePeriod`; differs: no.
        """
        return self._join(
            table, lambda _, left, right: joiner(left, right), joiner, "left", "left_join", value, grace, name
        )

    def left_join_with_key(
        self,
        table: KTable[K, VT],
        joiner: Callable[[K, V, VT | None], VR],
        *,
        value: Typed[VR] | None = None,
        grace: timedelta | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]:
        """`left_join` with a joiner `(key, value, row or None) -> value`.

        Source: `KStream#leftJoin(KTable, ValueJoinerWithKey)`; differs: no.
        """
        return self._join(table, joiner, joiner, "left", "left_join_with_key", value, grace, name)

    def join_stream(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V, VO], VR],
        windows: JoinWindows,
        *,
        value: Typed[VR] | None = None,
        store: str = "",
        name: str | None = None,
    ) -> KStream[K, VR]:
        """Joins records of the same key that are near each other in time; every pair is a result.

        Both sides trigger results. A result has the larger of both timestamps and the headers of the record that came
        later. Null keys and null values are dropped. A side whose key may have changed makes an exchange first. A late
        record still joins what the other side has kept.

        Shape: `KStream[K, V] + KStream[K, VO] -> KStream[K, VR]`; 1 record -> one per partner.
        Args:
            other: the right side; has the same type of key and, without exchanges, as many partitions.
            joiner: `(value, other value) -> value`.
            windows: how much earlier and later than the left record the right one may be.
            value: type or serde of the new value, if the joiner has no return annotation.
            store: prefix of its stores' names; part of the pipeline's state, so keep it.
            name: prefix of the names of its nodes and exchanges.
        State: the records of both sides, for `before + after + grace`; none with `before = after = grace = 0`, so
            nothing ever joins then.
        Source: `KStream#join(KStream)`, `StreamJoined`; differs: no.
        """
        return self._join_stream(
            other, lambda _, left, right: joiner(left, right), joiner, windows, "inner", value, store, name
        )

    def join_stream_with_key(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V, VO], VR],
        windows: JoinWindows,
        *,
        value: Typed[VR] | None = None,
        store: str = "",
        name: str | None = None,
    ) -> KStream[K, VR]:
        """`join_stream` with a joiner `(key, value, other value) -> value`.

        Source: `KStream#join(KStream, ValueJoinerWithKey)`; differs: no.
        """
        return self._join_stream(other, joiner, joiner, windows, "inner", value, store, name)

    def left_join_stream(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V, VO | None], VR],
        windows: JoinWindows,
        *,
        value: Typed[VR] | None = None,
        store: str = "",
        name: str | None = None,
    ) -> KStream[K, VR]:
        """`join_stream` that also forwards a left record, with its own timestamp, once no right one can join it.

        That is so once the largest timestamp of both sides has passed the record's by more than `after + grace`. The
        join checks it when a record advances this time. A left record without a key is forwarded at once.

        Shape: `KStream[K, V] + KStream[K, VO] -> KStream[K, VR]`; 1 left record -> 1 or more.
        Args:
            other: as in `join_stream`.
            joiner: `(value, other value or None) -> value`.
            windows: as in `join_stream`.
            value: as in `join_stream`.
            store: as in `join_stream`.
            name: as in `join_stream`.
        State: as `join_stream`, and the left records that have no partner yet.
        Source: `KStream#leftJoin(KStream)`; differs: no pause between two looks unless the builder has `emit_interval`.
        """
        return self._join_stream(
            other, lambda _, left, right: joiner(left, right), joiner, windows, "left", value, store, name
        )

    def left_join_stream_with_key(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V, VO | None], VR],
        windows: JoinWindows,
        *,
        value: Typed[VR] | None = None,
        store: str = "",
        name: str | None = None,
    ) -> KStream[K, VR]:
        """`left_join_stream` with a joiner `(key, value, other value or None) -> value`.

        Source: `KStream#leftJoin(KStream, ValueJoinerWithKey)`; differs: as `left_join_stream`.
        """
        return self._join_stream(other, joiner, joiner, windows, "left", value, store, name)

    def outer_join_stream(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V | None, VO | None], VR],
        windows: JoinWindows,
        *,
        value: Typed[VR] | None = None,
        store: str = "",
        name: str | None = None,
    ) -> KStream[K, VR]:
        """`left_join_stream` for both sides: records of either side without a partner are forwarded too.

        Shape: `KStream[K, V] + KStream[K, VO] -> KStream[K, VR]`; 1 record -> 1 or more.
        Args:
            other: as in `join_stream`.
            joiner: `(value or None, other value or None) -> value`; never None twice.
            windows: as in `join_stream`.
            value: as in `join_stream`.
            store: as in `join_stream`.
            name: as in `join_stream`.
        State: as `join_stream`, and the records of both sides that have no partner yet.
        Source: `KStream#outerJoin(KStream)`; differs: as `left_join_stream`.
        """
        return self._join_stream(
            other, lambda _, left, right: joiner(left, right), joiner, windows, "outer", value, store, name
        )

    def outer_join_stream_with_key(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V | None, VO | None], VR],
        windows: JoinWindows,
        *,
        value: Typed[VR] | None = None,
        store: str = "",
        name: str | None = None,
    ) -> KStream[K, VR]:
        """`outer_join_stream` with a joiner `(key, value or None, other value or None) -> value`.

        Source: `KStream#outerJoin(KStream, ValueJoinerWithKey)`; differs: as `left_join_stream`.
        """
        return self._join_stream(other, joiner, joiner, windows, "outer", value, store, name)

    def join_global(
        self,
        table: GlobalKTable[KG, VG],
        selector: Callable[[K, V], KG | None],
        joiner: Callable[[V, VG], VR],
        *,
        value: Typed[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]:
        """Adds the row that a global table has for a key computed from the record; a record without a row is dropped.

        Only the stream triggers results. Null values and null lookup keys are dropped; the record's key may be null.

        Shape: `KStream[K, V] + GlobalKTable[KG, VG] -> KStream[K, VR]`; 1 record -> 0 or 1.
        Args:
            table: made by `StreamsBuilder.global_table`.
            selector: `(key, value) -> lookup key`; it is called for null values too.
            joiner: `(value, row) -> value`.
            value: type or serde of the new value, if the joiner has no return annotation.
            name: name of the node.
        State: none; the rows are those of the table.
        Source: `KStream#join(GlobalKTable)`; differs: no.
        """
        return self._join_global(
            table, selector, lambda _, left, right: joiner(left, right), joiner, "inner", value, name
        )

    def join_global_with_key(
        self,
        table: GlobalKTable[KG, VG],
        selector: Callable[[K, V], KG | None],
        joiner: Callable[[K, V, VG], VR],
        *,
        value: Typed[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]:
        """`join_global` with a joiner `(key, value, row) -> value`; the key is the record's.

        Source: `KStream#join(GlobalKTable, ValueJoinerWithKey)`; differs: no.
        """
        return self._join_global(table, selector, joiner, joiner, "inner", value, name)

    def left_join_global(
        self,
        table: GlobalKTable[KG, VG],
        selector: Callable[[K, V], KG | None],
        joiner: Callable[[V, VG | None], VR],
        *,
        value: Typed[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]:
        """`join_global`; the joiner gets None for a record without a row, or without a lookup key.

        Shape: `KStream[K, V] + GlobalKTable[KG, VG] -> KStream[K, VR]`; 1 record -> 1.
        Args:
            table: made by `StreamsBuilder.global_table`.
            selector: `(key, value) -> lookup key`; it is called for null values too.
            joiner: `(value, row or None) -> value`.
            value: type or serde of the new value, if the joiner has no return annotation.
            name: name of the node.
        State: none; the rows are those of the table.
        Source: `KStream#leftJoin(GlobalKTable)`; differs: no.
        """
        return self._join_global(
            table, selector, lambda _, left, right: joiner(left, right), joiner, "left", value, name
        )

    def left_join_global_with_key(
        self,
        table: GlobalKTable[KG, VG],
        selector: Callable[[K, V], KG | None],
        joiner: Callable[[K, V, VG | None], VR],
        *,
        value: Typed[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]:
        """`left_join_global` with a joiner `(key, value, row or None) -> value`; the key is the record's.

        Source: `KStream#leftJoin(GlobalKTable, ValueJoinerWithKey)`; differs: no.
        """
        return self._join_global(table, selector, joiner, joiner, "left", value, name)

    def _join(
        self,
        table: KTable[K, VT],
        joiner: Callable[[Any, Any, Any], VR],
        given: Callable[..., Any],
        kind: Literal["inner", "left"],
        operator: str,
        value: Typed[VR] | None,
        grace: timedelta | None,
        name: str | None,
    ) -> KStream[K, VR]:
        where = call_site()
        check_shape(self.at.graph, given, "joiner", "value, row", operator, where)
        joined = join_table(
            self.at,
            table,
            joiner,
            hinted=returned(given),
            kind=kind,
            operator=operator,
            value=value,
            grace=grace,
            name=name,
            where=where,
        )
        return _stream(joined)

    def _join_stream(
        self,
        other: KStream[K, VO],
        joiner: Callable[[Any, Any, Any], VR],
        given: Callable[..., Any],
        windows: JoinWindows,
        kind: Literal["inner", "left", "outer"],
        value: Typed[VR] | None,
        store: str,
        name: str | None,
    ) -> KStream[K, VR]:
        where, operator = call_site(), "join_stream" if kind == "inner" else f"{kind}_join_stream"
        operator += "_with_key" if given is joiner else ""
        check_shape(self.at.graph, given, "joiner", "value, other", operator, where)
        need_handle(self.at.graph, other, type(self), operator=operator, where=where)
        example = "other, joiner, JoinWindows(difference=timedelta(minutes=5), grace=timedelta(0))"
        need_value(self.at.graph, windows, JoinWindows, example, operator)
        join = StreamJoin(
            operator=operator,
            kind=kind,
            joiner=joiner,
            windows=windows,
            value=self.at.settle(value, returned(given), operator=operator, argument="value", where=where),
            store=store,
            name=name,
            where=where,
        )
        return _stream(join_streams(self.at, other.at, join))

    def _join_global(
        self,
        table: GlobalKTable[KG, VG],
        selector: Callable[[Any, Any], Any],
        joiner: Callable[[Any, Any, Any], VR],
        given: Callable[..., Any],
        kind: Literal["inner", "left"],
        value: Typed[VR] | None,
        name: str | None,
    ) -> KStream[K, VR]:
        where, operator = call_site(), "join_global" if kind == "inner" else "left_join_global"
        operator += "_with_key" if given is joiner else ""
        check_shape(self.at.graph, given, "joiner", "value, row", operator, where)
        check_function(self.at.graph, selector, "selector(key, value)", operator=operator, where=where)
        known = self.at.settle(value, returned(given), operator=operator, argument="value", where=where)
        joined = join_global_table(
            self.at, table, selector, joiner, kind=kind, operator=operator, value=known, name=name, where=where
        )
        return _stream(joined)


def _stream(at: Point) -> KStream[Any, Any]:
    from deltaworks.dsl.kstream import KStream

    return KStream(at)
