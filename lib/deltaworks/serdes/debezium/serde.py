"""Topics that Debezium writes: the rows of a table, and each change of a row."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Generic, Literal, TypeVar, get_args

import msgspec

from deltaworks.errors import SerializationError
from deltaworks.serdes.base import NULL, Serde
from deltaworks.serdes.checked import plain_name
from deltaworks.serdes.debezium.changes import Op, RowChange, of_added, of_source, source_of
from deltaworks.serdes.debezium.columns import Column
from deltaworks.serdes.debezium.messages import Bytes, Change, Row, message_of
from deltaworks.serdes.debezium.rows import UNAVAILABLE, Rows
from deltaworks.serdes.debezium.values import Decimals, Said, Unit
from deltaworks.serdes.json import Json
from deltaworks.serdes.primitives import unfit, unreadable

T = TypeVar("T")

Form = Literal["any", "envelope", "row"]
_OPERATIONS = get_args(Op)
_SEND_WHOLE_ROWS = ("mariadb", "mysql", "sqlserver")
"""Connectors whose databases have no other `before`."""


class _Captured(Generic[T]):
    """What both serdes have in common: their arguments, and how records are told apart."""

    type: Any

    def __init__(
        self,
        type: type[T],
        *,
        form: Form = "any",
        unit: Unit | Mapping[str, Unit] | None = None,
        decimals: Decimals = "string",
        unavailable: str = UNAVAILABLE,
    ) -> None:
        if form not in get_args(Form):
            raise TypeError(f"form is {form!r}, and neither 'any', 'envelope' nor 'row'")
        self.row = type
        self.form = form
        self.unit = unit
        self.decimals = decimals
        self.unavailable = unavailable
        self._rows = Rows(type, Said(unit, decimals), unavailable)

    @property
    def name(self) -> str:
        """The format and the type."""
        raise NotImplementedError

    def _message(self, data: bytes) -> Change | Row | None:
        message = message_of(data)
        match message:
            case Row() if self.form == "envelope":
                raise ValueError("it is a row, and form='envelope' takes only changes with `before` and `after`")
            case Change() if self.form == "row":
                raise ValueError("it is a change with `before` and `after`, and form='row' takes only rows")
            case Change(op=op) | Row(op=str(op)) if op not in _OPERATIONS:
                raise ValueError(f"its operation is {op!r}, and none of {', '.join(_OPERATIONS)}")
            case _:
                return message

    def _after(self, message: Change) -> T:
        if message.after is None:
            raise ValueError(f"it has no `after`, which a change with op={message.op} has")
        row: T = self._rows.row(message.after, message.before, message.column)
        return row

    def _arguments(self) -> dict[str, Any]:
        return {"form": self.form, "unit": self.unit, "decimals": self.decimals, "unavailable": self.unavailable}

    def __eq__(self, other: object) -> bool:
        if not (isinstance(other, _Captured) and type(other) is type(self)):
            return False
        return bool(self.row == other.row) and self._arguments() == other._arguments()

    def __hash__(self) -> int:
        return hash((self.__class__, self.name))

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({plain_name(self.row)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **self._arguments()), (self.row,)


class Debezium(_Captured[T]):
    """Rows of a table from a topic that Debezium writes: what is read, also after a deletion, is the row as it is now.

    Shape: `bytes -> T`; a deletion is a null, as Kafka has it. Records are changes with `before` and `after`, or rows
    (ExtractNewRecordState); in JSON, with or without its schema. Each record says which it is. After the source, the
    values of a topology are plain rows: a topic that they are written to is JSON, as `Json(T)` writes it.

    `builder.table` keeps the rows, so that a deletion and the null that follows it are one deletion.

    Args:
        type: a `msgspec.Struct` or a dataclass; a column that it does not have is ignored, and a field with a default
            may be missing.
        form: `envelope` or `row` refuses records of the other kind.
        unit: what a number is for a field of type `datetime`, `time` or `timedelta`, where records have no schema:
            `ms`, `us` or `ns`; or a unit for each column.
        decimals: how the connector writes `numeric` (`decimal.handling.mode`), where records have no schema; `precise`
            needs `Annotated[Decimal, DecimalDigits(10, 2)]`.
        unavailable: what the connector writes for a value that the database has not sent
            (`unavailable.value.placeholder`).
        on_truncate: a truncated table is one record without a key, which cannot delete all rows: `refuse` makes a
            dead letter of it, `ignore` drops it; the rows stay.

    Raises:
        TypeError: JSON cannot hold the type, or it is no row.

    Source: none; Kafka Streams has no serde of Debezium.

    >>> import msgspec
    >>> class Customer(msgspec.Struct):
    ...     id: int
    ...     vip: bool = False
    >>> Debezium(Customer).deserialize(b'{"id":7,"vip":1,"__deleted":"false","__op":"u"}')
    Customer(id=7, vip=True)
    """

    def __init__(
        self,
        type: type[T],
        *,
        form: Form = "any",
        unit: Unit | Mapping[str, Unit] | None = None,
        decimals: Decimals = "string",
        unavailable: str = UNAVAILABLE,
        on_truncate: Literal["refuse", "ignore"] = "refuse",
    ) -> None:
        super().__init__(type, form=form, unit=unit, decimals=decimals, unavailable=unavailable)
        self.type = type
        self.on_truncate = on_truncate

    @property
    def name(self) -> str:
        """Such as `debezium(Customer)`."""
        return f"debezium({plain_name(self.row)})"

    def onward(self) -> Serde[T]:
        """The serde of the values after the source."""
        return Json(self.row)

    def serialize(self, value: T | None) -> bytes:
        """A row, as a connector writes it without `before` and `after`; for tests."""
        if value is None:
            return NULL
        try:
            return self._rows.written(value)
        except (TypeError, ValueError, OverflowError, SerializationError) as error:
            raise unfit(value, self.name, error) from error

    def deserialize(self, data: bytes | None) -> T:
        """The row; null if it is deleted.

        Raises:
            SerializationError: it is no row, or a column does not fit; says which one.
        """
        if data is None:
            return NULL
        try:
            return self._row(self._message(data))
        except (msgspec.MsgspecError, ValueError, UnicodeDecodeError, RecursionError, KeyError) as error:
            raise unreadable(data, self.name, error) from error

    def _row(self, message: Change | Row | None) -> T:
        match message:
            case None:
                return NULL
            case Change(op="t") | Row(op="t"):
                if self.on_truncate == "ignore":
                    return NULL
                raise ValueError(
                    "the table was truncated (op=t): one record without a key cannot delete its rows; delete them by "
                    "DELETE, or drop such records by on_truncate='ignore', and the rows stay"
                )
            case Change(op="d") | Row(is_deleted=True):
                return NULL
            case Change():
                return self._after(message)
            case Row(data, column=column):
                row: T = self._rows.row(data, None, column)
                return row

    def _arguments(self) -> dict[str, Any]:
        return {**super()._arguments(), "on_truncate": self.on_truncate}


class DebeziumChanges(_Captured[T]):
    """Each change of a row from a topic that Debezium writes, as a `RowChange`.

    Shape: `bytes -> RowChange[T]`. The null that follows a deletion stays null: `stream(..., on_null="skip")` drops it.
    The other arguments are those of `Debezium`. A truncated table is a change with `op="t"`.

    Args:
        type: of the rows.
        whole_before: whether `before` is the whole row. PostgreSQL sends it only if the table has `REPLICA IDENTITY
            FULL`; without it, Debezium makes up what is not the key, so that `before` is left out. None: it is, if the
            connector is that of MariaDB, MySQL or SQL Server.

    Raises:
        TypeError: JSON cannot hold the type, or it is no row.

    Source: none; Kafka Streams has no serde of Debezium.
    """

    def __init__(
        self,
        type: type[T],
        *,
        form: Form = "any",
        unit: Unit | Mapping[str, Unit] | None = None,
        decimals: Decimals = "string",
        unavailable: str = UNAVAILABLE,
        whole_before: bool | None = None,
    ) -> None:
        super().__init__(type, form=form, unit=unit, decimals=decimals, unavailable=unavailable)
        self.type = RowChange[type]  # type: ignore[valid-type]
        self.whole_before = whole_before

    @property
    def name(self) -> str:
        """Such as `debezium-changes(Customer)`."""
        return f"debezium-changes({plain_name(self.row)})"

    @staticmethod
    def source_time(record: Any, partition_time_ms: int) -> int:
        """A timestamp extractor: when the database made the change; a null has the time of its record.

        Args:
            record: as an extractor gets it.
            partition_time_ms: likewise; it is not used.
        """
        if record.value is None:
            return int(record.timestamp_ms)
        if not isinstance(record.value, RowChange):
            raise TypeError("only changes know their time: stream(..., value=DebeziumChanges(...))")
        found = record.value.source_ms
        return int(record.timestamp_ms if found is None else found)

    def onward(self) -> Serde[RowChange[T]]:
        """The serde of the values after the source."""
        return Json(self.type)

    def serialize(self, value: RowChange[T] | None) -> bytes:
        """A change with `before` and `after`; for tests."""
        if value is None:
            return NULL
        if not isinstance(value, RowChange) or value.op is None:
            raise unfit(value, self.name, "it is no RowChange with an operation")
        try:
            rows = [None if each is None else self._rows.written(each) for each in (value.before, value.after)]
            before, after = (msgspec.Raw(b"null" if each is None else each) for each in rows)
            return msgspec.json.encode(
                {"before": before, "after": after, "source": source_of(value), "op": value.op, "ts_ms": value.source_ms}
            )
        except (TypeError, ValueError, OverflowError, SerializationError) as error:
            raise unfit(value, self.name, error) from error

    def deserialize(self, data: bytes | None) -> RowChange[T]:
        """The change; null for the null that follows a deletion.

        Raises:
            SerializationError: it is no change, or a column does not fit; says which one.
        """
        if data is None:
            return NULL
        try:
            message = self._message(data)
            return NULL if message is None else self._change(message)
        except (msgspec.MsgspecError, ValueError, UnicodeDecodeError, RecursionError, KeyError) as error:
            raise unreadable(data, self.name, error) from error

    def _change(self, message: Change | Row) -> RowChange[T]:
        rows, column = self._rows, message.column
        if isinstance(message, Change):
            said = of_source(message.source)
            before = self._before(message.before, column, said)
            after = None if message.op in ("d", "t") else self._after(message)
            return RowChange(op=message.op, before=before, after=after, **said)  # type: ignore[arg-type]
        said = of_added(message.data)
        if message.is_deleted:
            return RowChange(op="d", before=self._before(message.data, column, said), **said)
        after = None if message.op == "t" else rows.row(message.data, None, column)
        return RowChange(op=message.op, after=after, **said)  # type: ignore[arg-type]

    def _before(self, data: Bytes | None, column: Column | None, said: Mapping[str, Any]) -> T | None:
        whole = self.whole_before
        if whole is None:
            whole = said["connector"] in _SEND_WHOLE_ROWS
        if data is None or not whole or not self._rows.is_whole(data):
            return None
        row: T = self._rows.row(data, None, column)
        return row

    def _arguments(self) -> dict[str, Any]:
        return {**super()._arguments(), "whole_before": self.whole_before}
