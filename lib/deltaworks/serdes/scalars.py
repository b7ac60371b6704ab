"""Exact numbers, instants and ids: UUIDs as Kafka's serializer writes them, decimals and timestamps as Connect does."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, InvalidOperation
from typing import ClassVar
from uuid import UUID

from deltaworks.serdes.base import NULL
from deltaworks.serdes.primitives import Long, unfit, unreadable

_EPOCH = datetime.fromtimestamp(0, UTC)
_MILLISECOND = timedelta(milliseconds=1)
_LONG = Long()
_EXACT = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)
"""Shifts the point of every number without rounding it."""


@dataclass(frozen=True)
class Uuid:
    """A UUID as its 36 characters (`UUIDSerializer`)."""

    name: ClassVar[str] = "uuid"
    type: ClassVar[type[UUID]] = UUID

    def serialize(self, value: UUID | None) -> bytes:
        """36 bytes."""
        if value is None:
            return NULL
        if not isinstance(value, UUID):
            raise unfit(value, "uuid")
        return str(value).encode()

    def deserialize(self, data: bytes | None) -> UUID:
        """The id; anything but the 36 characters is refused."""
        if data is None:
            return NULL
        try:
            if len(data) != _UUID_BYTES:
                raise ValueError(f"there should be {_UUID_BYTES}")
            return UUID(data.decode())
        except ValueError as error:
            raise unreadable(data, "uuid", error) from error


_UUID_BYTES = 36


@dataclass(frozen=True)
class DecimalText:
    """An exact decimal number as text, with all its digits: `12.50`.

    Kafka has no serializer for it; every language reads the text. As a key, `12.5` and `12.50` are two keys: quantize.

    >>> from decimal import Decimal
    >>> DecimalText().serialize(Decimal("12.50"))
    b'12.50'
    """

    name: ClassVar[str] = "decimal"
    type: ClassVar[type[Decimal]] = Decimal

    def serialize(self, value: Decimal | None) -> bytes:
        """Its digits, without an exponent."""
        if value is None:
            return NULL
        if not isinstance(value, Decimal) or not value.is_finite():
            raise unfit(value, "decimal")
        return f"{value:f}".encode()

    def deserialize(self, data: bytes | None) -> Decimal:
        """The number, exactly."""
        if data is None:
            return NULL
        try:
            value = Decimal(data.decode())
        except (InvalidOperation, UnicodeDecodeError) as error:
            raise unreadable(data, "decimal") from error
        if not value.is_finite():
            raise unreadable(data, "decimal")
        return value


@dataclass(frozen=True)
class ConnectDecimal:
    """An exact decimal number with a fixed scale, as Kafka Connect's `Decimal`: the unscaled integer, big-endian.

    >>> from decimal import Decimal
    >>> ConnectDecimal(2).serialize(Decimal("2.56"))
    b'\\x01\\x00'

    Args:
        scale: number of digits behind the point. A value with more is refused, never rounded.
    """

    scale: int
    type: ClassVar[type[Decimal]] = Decimal

    @property
    def name(self) -> str:
        """Such as `connect-decimal(2)`."""
        return f"connect-decimal({self.scale})"

    def serialize(self, value: Decimal | None) -> bytes:
        """The unscaled integer in two's complement, as few bytes as possible."""
        if value is None:
            return NULL
        if not isinstance(value, Decimal) or not value.is_finite():
            raise unfit(value, self.name)
        shifted = value.scaleb(self.scale, _EXACT)
        unscaled = int(shifted)
        if unscaled != shifted:
            raise unfit(value, self.name, f"it has more than {self.scale} digits behind the point")
        size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
        return unscaled.to_bytes(size, "big", signed=True)

    def deserialize(self, data: bytes | None) -> Decimal:
        """The number, with `scale` digits behind the point."""
        if data is None:
            return NULL
        if not data:
            raise unreadable(data, self.name)
        return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-self.scale, _EXACT)


@dataclass(frozen=True)
class Timestamp:
    """An instant as its milliseconds since the epoch, in the bytes of a `Long` (Kafka Connect's `Timestamp`).

    Values are aware `datetime`s, and are read in UTC. A value with microseconds is refused, never rounded.

    >>> from datetime import UTC, datetime
    >>> Timestamp().deserialize(Timestamp().serialize(datetime(2026, 3, 1, 12, tzinfo=UTC)))
    datetime.datetime(2026, 3, 1, 12, 0, tzinfo=datetime.timezone.utc)
    """

    name: ClassVar[str] = "timestamp"
    type: ClassVar[type[datetime]] = datetime

    def serialize(self, value: datetime | None) -> bytes:
        """8 bytes."""
        if value is None:
            return NULL
        if not isinstance(value, datetime):
            raise unfit(value, "timestamp")
        if value.tzinfo is None:
            raise unfit(value, "timestamp", "it has no time zone")
        milliseconds, rest = divmod(value - _EPOCH, _MILLISECOND)
        if rest:
            raise unfit(value, "timestamp", "it has microseconds")
        return _LONG.serialize(milliseconds)

    def deserialize(self, data: bytes | None) -> datetime:
        """The instant in UTC; anything but 8 bytes is refused, and so is any year that Python does not have."""
        if data is None:
            return NULL
        try:
            return _EPOCH + _LONG.deserialize(data) * _MILLISECOND
        except OverflowError as error:
            raise unreadable(data, "timestamp", error) from error
