"""What becomes of a record that the system behind a sink refuses: as with any production error, the pipeline says it.

The kernel has processed the record long ago (`kernel/context.py` handles what fails there); the batch is not committed
yet, so a dead letter is part of it.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from deltaworks.errors import ProductionError, RecordPosition, SinkError, StreamsError
from deltaworks.kernel.errors import answer, class_name, error_context, stops
from deltaworks.kernel.records import DeadLetter, Headers
from deltaworks.topology.error_handlers import ErrorAction, ErrorPolicy, FailedRecord, Response
from deltaworks.topology.sinks import RefusedRecord


class Letters(Protocol):
    """Takes dead letters."""

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers,
        partition_key: bytes | None = None,
    ) -> None:
        """One that an error handler has made."""

    def dead_letter(self, letter: DeadLetter) -> None:
        """One of the pipeline's policy."""


def refuse(refused: RefusedRecord[Any, Any], errors: ErrorPolicy, task: int, letters: Letters) -> None:
    """Applies the pipeline's policy.

    Args:
        refused: the record, with how it was read.
        errors: of the pipeline.
        task: its number.
        letters: takes the dead letters.

    Raises:
        StreamsError: the policy says fail, or its handler has failed.
        SinkError: the handler asks to write the record again, so the batch runs again.
    """
    error, record = ProductionError(refused.reason), refused.record
    letter = msgspec.structs.replace(record.as_read, error_class=class_name(error), message=refused.reason)
    failed = FailedRecord(record.key, record.value, record.timestamp_ms, record.headers)
    try:
        response = answer(errors.production, error_context("production", task, letter), failed, error)
    except Exception as bad:
        raise _stopped(f"has an error handler that failed ({class_name(bad)}: {bad})", letter, error) from bad
    if isinstance(response, Response):
        if response.action is ErrorAction.RETRY:
            raise SinkError(f"Sink '{letter.operator}' refuses a record, and its error handler says to try again.")
        for own in response.dead_letters:
            letters.send(own.topic, own.key, own.value, own.timestamp_ms, own.headers)
    else:
        letters.dead_letter(letter)
    if stops(response):
        raise _stopped("is refused by its sink", letter, error) from error


def _stopped(what: str, letter: DeadLetter, error: ProductionError) -> StreamsError:
    return StreamsError(
        f"a record {what}: {error.message}",
        position=RecordPosition(
            operator=letter.operator,
            topic=letter.source.topic or "no topic",
            partition=letter.source.partition,
            offset=letter.source.offset,
            timestamp_ms=letter.timestamp_ms,
            origin=None,
        ),
        hint='Pipeline(..., on_error="continue") sets such records aside as dead letters and goes on.',
    )
