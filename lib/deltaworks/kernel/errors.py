"""The handling of a failed record: the error that stops a stream, the dead letter in Kafka's form.

The policy and users' handlers are in `topology/error_handlers.py`, and `context.py` applies them. The error types are
in `deltaworks.errors`.
"""

from __future__ import annotations

from typing import Literal

from deltaworks.kernel.records import Coordinates, DeadLetter, Headers
from deltaworks.kernel.stacktrace import stacktrace
from deltaworks.topology.error_handlers import (
    ErrorAction,
    ErrorContext,
    ErrorPolicy,
    FailedRecord,
    Handling,
    OnError,
    Response,
)
from deltaworks.topology.java_names import advice

__all__ = ["ErrorPolicy", "OnError", "answer", "class_name", "dead_letter_record", "described", "error_context"]

ERROR_HEADER = "__streams.errors."
"""What the names of the headers of dead letters begin with (KIP-1034)."""


def answer(handling: Handling, context: ErrorContext, record: FailedRecord, error: Exception) -> Response | OnError:
    """The policy's answer to a failure; raises what a handler raises."""
    if isinstance(handling, str):
        return handling
    response = handling(context, record, error)
    if isinstance(response, Response) or response in ("fail", "continue"):
        return response
    raise TypeError(f"an error handler answers with a Response, 'fail' or 'continue', not with {response!r}")


def stops(response: Response | OnError) -> bool:
    """Whether the stream ends after the dead letters are written."""
    return response == "fail" or (isinstance(response, Response) and response.action is not ErrorAction.RESUME)


def error_context(
    kind: Literal["deserialization", "processing", "production"], task: int, letter: DeadLetter
) -> ErrorContext:
    """The context for a handler, from the dead letter that `continue` would write."""
    known = letter.source.topic != ""
    return ErrorContext(
        kind=kind,
        operator=letter.operator,
        topic=letter.source.topic if known else None,
        partition=letter.source.partition if known else -1,
        offset=letter.source.offset if known else -1,
        timestamp_ms=letter.timestamp_ms,
        headers=letter.headers,
        source_raw_key=letter.key,
        source_raw_value=letter.value,
        task=task,
        error_headers=_error_headers(letter),
    )


def dead_letter(
    key: bytes | None,
    value: bytes | None,
    timestamp_ms: int,
    headers: Headers,
    source: Coordinates,
    operator: str,
    error: Exception,
) -> DeadLetter:
    """A dead letter: the record as it was read, and why it was set aside."""
    return DeadLetter(
        key=key,
        value=value,
        headers=headers,
        timestamp_ms=timestamp_ms,
        source=source,
        error_class=class_name(error),
        message=_utf8(str(error)),
        operator=operator,
        stacktrace=_utf8(stacktrace(error)),
    )


def dead_letter_record(letter: DeadLetter) -> tuple[bytes | None, bytes | None, Headers]:
    """Key, value and headers for a dead letter topic: the bytes as read, and Kafka's error headers (KIP-1034)."""
    return letter.key, letter.value, letter.headers + _error_headers(letter)


def class_name(error: BaseException) -> str:
    """`module.Class`; only `Class` for a builtin."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def described(error: Exception) -> str:
    """An error in one line, with what to write instead if its author had Kafka Streams' names in mind."""
    hint = advice(error)
    return f"{class_name(error)}: {error}" + (f"; write {hint}" if hint else "")


def _utf8(text: str) -> str:
    """Replaces half characters, which an error may quote but no table and no header can hold."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def _error_headers(letter: DeadLetter) -> Headers:
    errors = {
        "exception": letter.error_class,
        "message": letter.message,
        "stacktrace": letter.stacktrace,
        "topic": letter.source.topic or None,
        "partition": str(letter.source.partition),
        "offset": str(letter.source.offset),
    }
    return tuple((ERROR_HEADER + name, None if text is None else text.encode()) for name, text in errors.items())
