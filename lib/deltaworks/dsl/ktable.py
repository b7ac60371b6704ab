"""Tables: the latest value of each key, as a stream of updates that know the old value."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from deltaworks.dsl.external import ExternalSinks
from deltaworks.dsl.graph import GENERATED_STORE, call_site
from deltaworks.dsl.join_arguments import check_table_join
from deltaworks.dsl.materialized import Stored
from deltaworks.dsl.mistakes import Handle, check_function, need_handle, need_value
from deltaworks.dsl.point import Known, Point, Typed
from deltaworks.dsl.shown import handle, stored
from deltaworks.dsl.state_stores import StoreBuilder
from deltaworks.dsl.suppress import suppress
from deltaworks.dsl.table_joins import join_tables
from deltaworks.dsl.table_readers import ask_for_old_values
from deltaworks.dsl.table_views import filter_rows, map_rows, transform_rows
from deltaworks.dsl.tables import KeyColumns, ValueColumn, delta_sink
from deltaworks.serdes.inference import pair, returned
from deltaworks.topology.nodes import TableGroupBy, TableToStream
from deltaworks.topology.nodes.sinks import TableKind
from deltaworks.topology.processors import ValueTransformer
from deltaworks.topology.suppressed import Suppressed

if TYPE_CHECKING:
    from deltaworks.dsl.grouped_table import KGroupedTable
    from deltaworks.dsl.kstream import KStream

K = TypeVar("K")
V = TypeVar("V")
KR = TypeVar("KR")
VR = TypeVar("VR")
KO = TypeVar("KO")
VO = TypeVar("VO")


class KTable(ExternalSinks, Handle, Generic[K, V]):
    """A table at one point of a topology; a handle, made by the builder and by aggregates.

    >>> from deltaworks import StreamsBuilder
    >>> from deltaworks.testing import TopologyTestDriver
    >>> builder = StreamsBuilder()
    >>> users = builder.table("users", key=str, value=str, store="users")
    >>> users.filter(lambda _, city: city == "Utrecht").to_stream().to("locals")
    >>> driver = TopologyTestDriver(builder.build())
    >>> updates = driver.create_input_topic("users")
    >>> updates.pipe_key_value_list([("ann", "Utrecht"), ("bob", "Gouda"), ("ann", "Gouda")])
    >>> driver.create_output_topic("locals").read_key_values_to_list()
    [('ann', 'Utrecht'), ('ann', None)]

    Args:
        at: where its updates come out.
        window_node: the aggregate that made the windows of its keys, if they are windowed.
    """

    def __init__(self, at: Point, *, window_node: str | None = None) -> None:
        self.at = at
        self.window_node = window_node

    def __repr__(self) -> str:
        return handle(self, self.at, stored(next(iter(self.at.graph.node(self.at.node).fills), None)))

    @property
    def queryable_store_name(self) -> str | None:
        """The name that the user gave the store of its rows; None if the table has no such store.

        Source: `KTable#queryableStoreName`.
        """
        name = next(iter(self.at.graph.node(self.at.node).fills), None)
        return None if name is None or GENERATED_STORE.search(name) else name

    def filter(self, predicate: Callable[[K, V], bool], *, store: Stored = "", name: str | None = None) -> KTable[K, V]:
        """Keeps the rows for which the predicate holds; a row for which it no longer holds is deleted.

        Shape: `KTable[K, V] -> KTable[K, V]`; 1 update -> 1 update, or none if the row was and stays absent.

        Args:
            predicate: `(key, value) -> bool`; not called for a delete.
            store: name of a store for the rows; without one they are computed at each lookup by a join.
            name: name of the node.

        State: none, or a value per key in the store.
        Source: `KTable#filter`; differs: no.
        """
        return self._filter(predicate, negate=False, store=store, name=name)

    def filter_not(
        self, predicate: Callable[[K, V], bool], *, store: Stored = "", name: str | None = None
    ) -> KTable[K, V]:
        """Keeps the rows for which the predicate does not hold; see `filter`.

        Source: `KTable#filterNot`; differs: no.
        """
        return self._filter(predicate, negate=True, store=store, name=name)

    def map_values(
        self,
        mapper: Callable[[V], VR],
        *,
        value: Typed[VR] | None = None,
        store: Stored = "",
        name: str | None = None,
    ) -> KTable[K, VR]:
        """Changes the value of each row; a mapper that returns None deletes the row.

        Shape: `KTable[K, V] -> KTable[K, VR]`; 1 update -> 1 update.

        Args:
            mapper: `value -> value`; not called for a delete.
            value: type or serde of the new value, if the mapper has no return annotation.
            store: name of a store for the rows; without one they are computed at each lookup by a join.
            name: name of the node.

        State: none, or a value per key in the store.
        Source: `KTable#mapValues`; differs: no.
        """
        return self._map(lambda _, row: mapper(row), mapper, "map_values", value, store, name)

    def map_values_with_key(
        self,
        mapper: Callable[[K, V], VR],
        *,
        value: Typed[VR] | None = None,
        store: Stored = "",
        name: str | None = None,
    ) -> KTable[K, VR]:
        """`map_values` with a mapper `(key, value) -> value`.

        Source: `KTable#mapValues(ValueMapperWithKey)`; differs: no.
        """
        return self._map(mapper, mapper, "map_values_with_key", value, store, name)

    def transform_values(
        self,
        supplier: Callable[[], ValueTransformer[K, V | None, VR]],
        *stores: str | StoreBuilder[Any],
        store: Stored = "",
        value: Typed[VR] | None = None,
        name: str | None = None,
    ) -> KTable[K, VR]:
        """Changes the value of each row with an object that you write; it may use stores, and also sees deletes.

        Shape: `KTable[K, V] -> KTable[K, VR]`; 1 update -> 1 update.

        Args:
            supplier: makes the object, such as its class; called once per task, and for each join that looks rows up.
            stores: the stores that the object uses: names, or declarations, which are added.
            store: name of a store for the rows; without one they are computed at each lookup by a join.
            value: type or serde of the new value, if the class does not say (`ValueTransformer[K, V, VR]`).
            name: name of the node.

        State: none, or a value per key in the store.
        Source: `KTable#transformValues`; differs: no.
        """
        transformed = transform_rows(self.at, supplier, stores, value=value, store=store, name=name, where=call_site())
        return KTable(transformed, window_node=self.window_node)

    def group_by(
        self,
        selector: Callable[[K, V], tuple[KR, VR]],
        *,
        key: Typed[KR] | None = None,
        value: Typed[VR] | None = None,
        name: str | None = None,
    ) -> KGroupedTable[KR, VR]:
        """Groups the rows by a new key; each aggregate makes an exchange, unless it shares a named one.

        A changed row leaves its old group, then enters its new one. Rows with a null group or value are in no group.
        Only the latest versions of a versioned table are grouped.

        Args:
            selector: `(key, value) -> (group, value)`; not called for a delete.
            key: type or serde of the group, if the selector has no return annotation.
            value: type or serde of the new value, likewise.
            name: name of the exchange and of the node that selects the group.

        State: that of the table, which gets a store if it has none.
        Source: `KTable#groupBy`; differs: no.
        """
        from deltaworks.dsl.grouped_table import KGroupedTable

        where, graph = call_site(), self.at.graph
        check_function(graph, selector, "selector(key, value)", operator="group_by", where=where)
        new_key, new_value = pair(returned(selector))
        known_key = self.at.settle(key, new_key, operator="group_by", argument="key", where=where)
        known_value = self.at.settle(value, new_value, operator="group_by", argument="value", where=where)
        node = TableGroupBy(
            name=graph.name_of(name, "KTABLE-SELECT-"), parents=(self.at.node,), selector=selector, origin=where
        )
        at = self.at.then(node, key=known_key, value=known_value)
        ask_for_old_values(graph, self.at.node, force=True)
        return KGroupedTable(at, name)

    @overload
    def join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO], VR],
        *,
        value: Typed[VR] | None = None,
        store: Stored = "",
        name: str | None = None,
    ) -> KTable[K, VR]: ...

    @overload
    def join(
        self,
        other: KTable[KO, VO],
        joiner: Callable[[V, VO], VR],
        *,
        foreign_key: Callable[[K, V], KO | None],
        value: Typed[VR] | None = None,
        store: Stored = "",
        name: str | None = None,
    ) -> KTable[K, VR]: ...

    def join(
        self,
        other: KTable[Any, VO],
        joiner: Callable[[V, Any], VR],
        *more: Any,
        foreign_key: Callable[[K, V], Any] | None = None,
        value: Typed[VR] | None = None,
        store: Stored = "",
        name: str | None = None,
    ) -> KTable[K, VR]:
        """Joins the rows of two tables of the same key, or by a foreign key; rows without a partner are left out.

        Both sides trigger. By a foreign key, each row gets the row of the other table that it refers to. A row of the
        other table that changes is joined again with all rows that refer to it, in the order of their keys. A result of
        its change carries that change's timestamp. Deletes may come for rows that had not been joined.

        Shape: `KTable[K, V] + KTable[K, VO] -> KTable[K, VR]`; 1 row per key that both tables have.
            `KTable[K, V] + KTable[KO, VO] -> KTable[K, VR]`; 1 update -> 1, of the other table n.

        Args:
            other: has the same type of key and as many partitions, except by a foreign key. Windowed tables join
                windowed ones.
            joiner: `(value, other value) -> value`; None deletes the row.
            more: refused; the joiner is the last positional argument.
            foreign_key: `(key, value) -> key of the other table`; None refers to no row.
            value: type or serde of the new value, if the joiner has no return annotation.
            store: name of a store for the rows; without one they are joined at each lookup. By a foreign key, there is
                one by default only if something needs the rows.
            name: name of the node. By a foreign key, prefix of the names of its nodes and of its store of subscriptions
                (`<name>-subscription-store`).

        State: those of both tables, which get a store if they have none; with a store, a value per key. By a foreign
            key, also a subscription per row, for ever.
        Source: `KTable#join`, KIP-213; differs: by a foreign key, no partitioners of its own.

        >>> from deltaworks import StreamsBuilder
        >>> from deltaworks.testing import TopologyTestDriver
        >>> builder = StreamsBuilder()
        >>> books = builder.table("books", key=str, value=str, store="books")
        >>> authors = builder.table("authors", key=str, value=str, store="authors")
        >>> whose = books.join(authors, lambda _, name: name, foreign_key=lambda _, by: by, value=str, name="whose")
        >>> whose.to_stream().to("whose")
        >>> driver = TopologyTestDriver(builder.build())
        >>> driver.create_input_topic("books").pipe_input("Emma", "austen")
        >>> driver.create_input_topic("authors").pipe_input("austen", "Jane Austen")
        >>> driver.create_output_topic("whose").read_key_values_to_list()
        [('Emma', 'Jane Austen')]
        """
        return self._join("join", "inner", other, joiner, more, foreign_key, value, store, name)

    @overload
    def left_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO | None], VR],
        *,
        value: Typed[VR] | None = None,
        store: Stored = "",
        name: str | None = None,
    ) -> KTable[K, VR]: ...

    @overload
    def left_join(
        self,
        other: KTable[KO, VO],
        joiner: Callable[[V, VO | None], VR],
        *,
        foreign_key: Callable[[K, V], KO | None],
        value: Typed[VR] | None = None,
        store: Stored = "",
        name: str | None = None,
    ) -> KTable[K, VR]: ...

    def left_join(
        self,
        other: KTable[Any, VO],
        joiner: Callable[[V, Any], VR],
        *more: Any,
        foreign_key: Callable[[K, V], Any] | None = None,
        value: Typed[VR] | None = None,
        store: Stored = "",
        name: str | None = None,
    ) -> KTable[K, VR]:
        """`join` that has a row per key of this table; the joiner gets None where the other has no row.

        Source: `KTable#leftJoin`, KIP-213; differs: as `join`.
        """
        return self._join("left_join", "left", other, joiner, more, foreign_key, value, store, name)

    def outer_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V | None, VO | None], VR],
        *,
        value: Typed[VR] | None = None,
        store: Stored = "",
        name: str | None = None,
    ) -> KTable[K, VR]:
        """`join` that has a row per key of either table; the joiner gets None where one has no row.

        Source: `KTable#outerJoin`; differs: no.
        """
        return self._join("outer_join", "outer", other, joiner, (), None, value, store, name)

    def suppress(self, suppressed: Suppressed[K], *, store: str = "", name: str | None = None) -> KTable[K, V]:
        """Holds updates back until windows close or a time has passed.

        Only the last of the updates of a key that arrive meanwhile is forwarded. Time is the largest timestamp that has
        arrived here, so it stands still when no updates arrive. Lookups see a row as it was before the held updates.

        Shape: `KTable[K, V] -> KTable[K, V]`; n updates of a key -> 1.

        Args:
            suppressed: `Suppressed.until_window_closes(...)` or `Suppressed.until_time_limit(...)`.
            store: name of its buffer; part of the pipeline's state, so keep it. The default is `<name>-store`.
            name: name of the node.

        State: the updates held back.
        Source: `KTable#suppress`; differs: the name is not in `Suppressed`; dead letters of held updates are empty.
        """
        example = "Suppressed.until_window_closes(BufferConfig.unbounded())"
        need_value(self.at.graph, suppressed, Suppressed, example, "suppress")
        at = suppress(self.at, suppressed, store=store, name=name, where=call_site())
        return KTable(at, window_node=at.node if self.window_node else None)

    def to_stream(self, *, name: str | None = None) -> KStream[K, V]:
        """Returns the updates as a stream; a delete is a null value.

        Shape: `KTable[K, V] -> KStream[K, V]`; 1 update -> 1 record.
        State: none.
        Source: `KTable#toStream`; differs: for a key selector, chain `select_key`.
        """
        from deltaworks.dsl.kstream import KStream

        node = TableToStream(
            name=self.at.graph.name_of(name, "KTABLE-TOSTREAM-"), parents=(self.at.node,), origin=call_site()
        )
        return KStream(self.at.then(node))

    def to_delta(
        self,
        table: str,
        *,
        key: KeyColumns = None,
        value: ValueColumn = None,
        doc: str | None = None,
        name: str | None = None,
    ) -> None:
        """Writes the table to Delta tables, exactly once.

        A table becomes `<table>_changelog` (every update that is forwarded) and `<table>` (its rows as of a batch).
        A windowed table becomes `<table>`: one row per key and window, with `window_start`, `window_end`, `is_final`.

        An update with a value that no column can hold (`NaN` in a DECIMAL, an int of more than 64 bits) is a production
        error: with `on_error="continue"` it becomes a dead letter. The Delta tables then keep the previous row, while
        the state store has the new one, until an update fits.

        Args:
            table: name of the Delta table.
            key: the key's column, by its name or as a `Column` that says what it means. Several if the key has several:
                a tuple, or a type with fields, whose columns have the names of the fields otherwise. If a field of the
                value has that name, both are one column; a record in which they differ is a production error.
            value: the value's column, if the value has no fields; the columns of a value with fields have their names.
            doc: description of the table, for its readers.
            name: name of the node.

        Source: none; in Kafka Streams a connector reads the topic of the table.
        """
        at = self.at
        delta_sink(
            at,
            table,
            self._kind(),
            key=key,
            value=value,
            doc=doc,
            known_key=self._known_key(),
            window_node=self.window_node,
            name=at.graph.name_of(name, "KTABLE-TODELTA-"),
            where=call_site(),
        )

    def _kind(self) -> TableKind:
        return TableKind.WINDOWED if self.window_node else TableKind.CHANGELOG

    def _known_key(self) -> Known:
        return getattr(self.at.key, "inner", self.at.key) if self.window_node else self.at.key

    def _filter(
        self, predicate: Callable[[K, V], bool], *, negate: bool, store: Stored, name: str | None
    ) -> KTable[K, V]:
        where, operator = call_site(), "filter_not" if negate else "filter"
        check_function(self.at.graph, predicate, "predicate(key, value)", operator=operator, where=where)
        filtered = filter_rows(
            self.at,
            predicate,
            negate=negate,
            store=store,
            name=name,
            operator=operator,
            where=where,
        )
        return KTable(filtered, window_node=self.window_node)

    def _map(
        self,
        mapper: Callable[[K, V], VR],
        annotated: Callable[..., Any],
        operator: str,
        value: Typed[VR] | None,
        store: Stored,
        name: str | None,
    ) -> KTable[K, VR]:
        where, keyed = call_site(), operator == "map_values_with_key"
        shape = "mapper(key, value)" if keyed else "mapper(value)"
        check_function(self.at.graph, annotated, shape, operator=operator, where=where, with_key=not keyed)
        known = self.at.settle(value, returned(annotated), operator=operator, argument="value", where=where)
        mapped = map_rows(self.at, mapper, value=known, store=store, name=name, operator=operator, where=where)
        return KTable(mapped, window_node=self.window_node)

    def _join(
        self,
        operator: str,
        kind: Literal["inner", "left", "outer"],
        other: KTable[Any, VO],
        joiner: Callable[[Any, Any], VR],
        more: tuple[Any, ...],
        foreign_key: Callable[[K, V], Any] | None,
        value: Typed[VR] | None,
        store: Stored,
        name: str | None,
    ) -> KTable[K, VR]:
        from deltaworks.dsl.foreign_keys import join_foreign_key

        where, graph = call_site(), self.at.graph
        need_handle(graph, other, KTable, operator=operator, where=where)
        check_table_join(graph, more, operator=operator, where=where)
        check_function(graph, joiner, "joiner(value, other)", operator=operator, where=where)
        known = self.at.settle(value, returned(joiner), operator=operator, argument="value", where=where)
        if foreign_key is not None:
            assert kind != "outer", operator
            check_function(graph, foreign_key, "foreign_key(key, value)", operator=operator, where=where)
            return join_foreign_key(
                self.at,
                other.at,
                foreign_key,
                joiner,
                kind=kind,
                operator=operator,
                value=known,
                store=store,
                name=name,
                where=where,
            )
        joined = join_tables(
            self.at,
            other.at,
            joiner,
            kind=kind,
            operator=operator,
            value=known,
            store=store,
            name=name,
            window_nodes=(self.window_node, other.window_node),
            where=where,
        )
        return KTable(joined, window_node=joined.node if self.window_node else None)
