"""What happens to a record that fails: the policy, the error that stops a stream, the dead letter in Kafka's form.

The policy is applied in `context.py`; the error types are in `deltaworks.errors`.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Literal

from deltaworks.kernel.records import Coordinates, DeadLetter, Headers, RecordBatch

OnError = Literal["fail", "continue"]
_HEADER = "__streams.errors."


@dataclass(frozen=True)
class ErrorPolicy:
    """Per kind of failure: `fail` stops the stream, `continue` sets the record aside and goes on."""

    deserialization: OnError = "fail"
    """Bytes that do not decode, a negative timestamp."""
    processing: OnError = "fail"
    """A user's function raised."""
    production: OnError = "fail"
    """A result that does not encode."""

    @classmethod
    def of(cls, on_error: OnError) -> ErrorPolicy:
        """The same answer for every kind."""
        return cls(on_error, on_error, on_error)


def dead_letter(batch: RecordBatch, index: int, operator: str, error: Exception) -> DeadLetter:
    """The record as it was read, and why it was set aside."""
    return DeadLetter(
        key=batch.keys[index],
        value=batch.values[index],
        headers=batch.headers[index] if batch.headers else (),
        timestamp_ms=batch.timestamps_ms[index],
        source=Coordinates(batch.topic, batch.partition, batch.offsets[index]),
        error_class=class_name(error),
        message=str(error),
        operator=operator,
        stacktrace="".join(traceback.format_exception(error)),
    )


def dead_letter_record(letter: DeadLetter) -> tuple[bytes | None, bytes | None, Headers]:
    """Key, value and headers for a dead letter topic: the bytes as read, and Kafka's error headers (KIP-1034)."""
    errors = {
        "exception": letter.error_class,
        "message": letter.message,
        "stacktrace": letter.stacktrace,
        "topic": letter.source.topic,
        "partition": str(letter.source.partition),
        "offset": str(letter.source.offset),
    }
    headers = tuple((_HEADER + name, text.encode(errors="backslashreplace")) for name, text in errors.items())
    return letter.key, letter.value, letter.headers + headers


def class_name(error: BaseException) -> str:
    """`module.Class`; only `Class` for a builtin."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
