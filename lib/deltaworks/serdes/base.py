"""How keys and values become bytes."""

from __future__ import annotations

from typing import Any, Never, Protocol, TypeGuard, TypeVar, cast

T = TypeVar("T")

NULL: Never = cast("Never", None)
"""What our serdes make of None, as Kafka's do. It has every type: who gives no None gets none."""


def is_serde(given: Any) -> TypeGuard[Serde[Any]]:
    """Whether a user gave a serde (or the class of one) and not a type."""
    return hasattr(given, "serialize") and hasattr(given, "deserialize")


def onward(serde: Any) -> Any:
    """The serde of values after their source: another one if this one is only for reading (`Debezium`)."""
    return serde.onward() if hasattr(serde, "onward") else serde


class Serde(Protocol[T]):
    """Serializes and deserializes one type.

    A null key or value of a topology stays null and never reaches a serde, so yours need not handle None. The serdes of
    this package return None for None, as Kafka's do.

    A serde is sent to the executors, so it survives `pickle` (`cloudpickle` when its type lives in the main script).
    """

    @property
    def name(self) -> str:
        """Stable text for the plan's fingerprint, such as `string` or `json(User)`."""

    @property
    def type(self) -> Any:
        """The Python type of the values, such as `str`, `User` or `list[int]`; Delta columns derive from it."""

    def serialize(self, value: T) -> bytes:
        """Raises `SerializationError` when the value is not of this type."""

    def deserialize(self, data: bytes) -> T:
        """Raises `SerializationError` when the bytes are not of this type."""
