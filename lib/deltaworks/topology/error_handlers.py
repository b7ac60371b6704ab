"""What a pipeline does with a failed record: the words `fail` and `continue`, or a function of the user.

The task applies the policy in `kernel/context.py`; the dead letters are made in `kernel/errors.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from deltaworks.topology.records import Coordinates, Headers

OnError = Literal["fail", "continue"]
MAX_RETRIES = 3
"""How often a record is written again at a handler's request; after that the answer counts as `fail`."""


class FailedRecord(msgspec.Struct, frozen=True):
    """The failed record.

    After a deserialization error: the record as it was read, in bytes. Processing: the record as the operator got it.
    Production: the record as it was to be written, and its `topic`; None: a Delta table.
    """

    key: Any
    value: Any
    timestamp_ms: int
    headers: Headers
    topic: str | None = None


class DeadLetterRecord(msgspec.Struct, frozen=True):
    """A record that an error handler has written."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers = ()


class ErrorContext(msgspec.Struct, frozen=True):
    """Where and why a record failed, for an error handler.

    Source: `ErrorHandlerContext`; differs: `dead_letter` is a method of it; no task id but the number of the task.
    """

    kind: Literal["deserialization", "processing", "production"]
    operator: str
    """Name of the node, as `describe()` shows it."""
    topic: str | None
    """Where the record in process was read from; None if there is none, as in a punctuator."""
    partition: int
    """Partition of that topic; -1 if there is no record."""
    offset: int
    """Offset in that partition; -1 if there is no record."""
    timestamp_ms: int
    headers: Headers
    source_raw_key: bytes | None
    """The bytes of the record in process, as it was read."""
    source_raw_value: bytes | None
    task: int
    """Its number."""
    error_headers: Headers
    """Kafka's headers for a dead letter (KIP-1034): exception, message, stack trace, topic, partition, offset."""

    def dead_letter(self, topic: str) -> DeadLetterRecord:
        """The dead letter that `continue` would write: the record in process as it was read, and why it failed."""
        return DeadLetterRecord(
            topic, self.source_raw_key, self.source_raw_value, self.timestamp_ms, self.headers + self.error_headers
        )


class ErrorAction(Enum):
    """What happens next."""

    FAIL = "fail"
    RESUME = "resume"
    RETRY = "retry"


@dataclass(frozen=True)
class Response:
    """The answer of an error handler: `Response.fail()`, `.resume()` or `.retry()`.

    Source: `ProcessingExceptionHandler.Response` and its relatives; differs: one class for all three handlers.
    """

    action: ErrorAction
    dead_letters: tuple[DeadLetterRecord, ...] = ()

    @classmethod
    def fail(cls, dead_letters: Iterable[DeadLetterRecord] = ()) -> Response:
        """Stops the stream after the dead letters are written.

        A host with transactions undoes them with the rest of the batch.
        """
        return cls(ErrorAction.FAIL, tuple(dead_letters))

    @classmethod
    def resume(cls, dead_letters: Iterable[DeadLetterRecord] = ()) -> Response:
        """Drops the record, counts it and goes on, after the dead letters are written."""
        return cls(ErrorAction.RESUME, tuple(dead_letters))

    @classmethod
    def retry(cls) -> Response:
        """For production errors only: writes the record again, up to three times; otherwise it is `fail`."""
        return cls(ErrorAction.RETRY)


class ErrorHandler(Protocol):
    """A function `(context, record, exception) -> Response`; one that raises stops the stream.

    It may also answer with the words `"fail"` and `"continue"`: then the record goes to the pipeline's dead letters.

    ```python
    def skip_bad_numbers(context: ErrorContext, record: FailedRecord, exception: Exception) -> Response:
        if isinstance(exception, ValueError):
            return Response.resume([context.dead_letter("bad-numbers")])
        return Response.fail()
    ```

    Source: `DeserializationExceptionHandler`, `ProcessingExceptionHandler`, `ProductionExceptionHandler`; differs: one
    form for all three.
    """

    def __call__(self, context: ErrorContext, record: FailedRecord, exception: Exception, /) -> Response | OnError: ...


Handling: TypeAlias = Literal["fail", "continue"] | ErrorHandler
"""The answer of an `ErrorPolicy` for one kind of failure."""


@dataclass(frozen=True)
class ErrorPolicy:
    """Per kind of failure: `fail` stops the stream, `continue` sets the record aside and goes on, a function decides.

    Both words write the dead letter, as in Kafka Streams.
    """

    deserialization: Handling = "fail"
    """Bytes that do not decode, a negative timestamp."""
    processing: Handling = "fail"
    """A user's function raised."""
    production: Handling = "fail"
    """A result that does not encode, or does not fit the columns of its Delta table."""
    keep_bytes: bool = False
    """Dead letters have the key and value that were read even if a sink took the record before it failed; Kafka
    Streams has dropped both by then."""
    set_aside: frozenset[Coordinates] = frozenset()
    """Records that become dead letters without being decoded, whatever the policy says."""
    resends_of: str | None = None
    """Name of the pipeline whose failed records can be sent again. None: such records are skipped, as are those of
    other pipelines."""

    @classmethod
    def of(cls, on_error: Handling, *, keep_bytes: bool = False) -> ErrorPolicy:
        """The same answer for every kind."""
        return cls(on_error, on_error, on_error, keep_bytes)
