"""The messages between the two halves of a foreign-key join.

Internal: nothing else reads these bytes, and they live only while a record is in transit or a subscription is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import msgspec

from deltaworks.serdes.base import Serde


class Instruction(IntEnum):
    """Tells the right side what to do with a subscription, and when to answer.

    Source: `SubscriptionWrapper.Instruction`.
    """

    DELETE = 0
    """Forget it; no answer."""
    DELETE_AND_ANSWER = 1
    """Forget it, and answer that there is no row."""
    ANSWER = 2
    """Keep it, and always answer, even if there is no row."""
    ANSWER_IF_FOUND = 3
    """Keep it, and answer only with a row."""


class Subscription(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row of the left table asks for a row of the right one."""

    digest: bytes | None
    """Digest of the left value that asks; None if the left row was deleted."""
    instruction: Instruction
    key: bytes
    """The serialized key of the left row."""
    task: int
    """The task that owns the left row."""


class Answer(msgspec.Struct, frozen=True, gc=False):
    """The right table's row for a row of the left one."""

    digest: bytes | None
    """Digest of the left value that asked; the answer counts only if the value is still the same."""
    value: Any
    """Value of the right row; None if there is no row."""
    task: int
    """The task that owns the left row."""


@dataclass(frozen=True)
class SubscriptionSerde:
    """The serde of subscriptions, as the left side sends them and the right side keeps them."""

    @property
    def name(self) -> str:
        """`subscription`."""
        return "subscription"

    @property
    def type(self) -> type[Subscription]:
        """`Subscription`."""
        return Subscription

    def serialize(self, value: Subscription) -> bytes:
        """MessagePack."""
        return _encode(value)

    def deserialize(self, data: bytes) -> Subscription:
        """MessagePack."""
        return _decode_subscription(data)


@dataclass(frozen=True)
class AnswerSerde:
    """The serde of answers, which the right side sends back."""

    inner: Serde[Any]
    """The serde of the right table's values."""

    @property
    def name(self) -> str:
        """Such as `answer(string)`."""
        return f"answer({self.inner.name})"

    @property
    def type(self) -> type[Answer]:
        """`Answer`."""
        return Answer

    def serialize(self, value: Answer) -> bytes:
        """MessagePack around the bytes of the value."""
        data = None if value.value is None else self.inner.serialize(value.value)
        return _encode((value.digest, data, value.task))

    def deserialize(self, data: bytes) -> Answer:
        """MessagePack around the bytes of the value."""
        digest, value, task = _decode_answer(data)
        return Answer(digest, None if value is None else self.inner.deserialize(value), task)


_encode = msgspec.msgpack.Encoder().encode
_decode_subscription = msgspec.msgpack.Decoder(Subscription).decode
_decode_answer = msgspec.msgpack.Decoder(tuple[bytes | None, bytes | None, int]).decode
