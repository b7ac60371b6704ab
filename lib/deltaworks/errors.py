"""Everything that deltaworks raises on purpose.

```
DeltaworksError                      the root: catch this to catch all
├── TopologyError                    a topology cannot be built: every problem at once, each with the user's line
├── ConfigurationError               a setting or the environment is wrong; nothing has run yet
├── TerminalError                    trying again gives the same failure
│   ├── SerializationError           bytes that do not decode, a value that does not encode
│   ├── ProductionError              a topic cannot take a record: it is too large, or there is no such topic
│   ├── StreamsError                 an operator failed on a record, and the pipeline says `fail`
│   ├── SetAsideError                somebody said that a record shall not be processed
│   ├── IncompatibleCheckpointError  the plan is not the one that the checkpoint belongs to
│   ├── IntentError                  what was done under a batch id is not what this stream means by it
│   ├── RecordsGoneError             records that must be read are no longer in Kafka, nor in an archive
│   ├── LeaseError                   another driver works on the same checkpoint
│   │   ├── FencedError              a newer generation of the pipeline has taken over
│   │   └── LineageError             another stream of the same name owns the pipeline at this Kafka
│   ├── ConflictError                what was asked for does not fit what somebody else does or has done
│   ├── TableError                   a Delta table cannot take what it is given, or is not as it should be
│   └── KafkaTopicError              a topic is missing, or is not as the pipeline needs it
├── QueryError                       Spark ended the query for a reason of its own
└── TransientError                   trying again may help
    ├── StackError                   a component that runs around us does not come up or went away
    ├── ControlUnavailableError      the registry (PostgreSQL) does not answer
    ├── StateError                   a store of the host cannot be read
    ├── DiskFullError                a disk has no room; goes on when there is some
    ├── KafkaReadError               the broker did not answer
    ├── SinkError                    a sink of the author's own has failed; its batch was aborted
    ├── BatchTooLongError            the broker ended a transaction because its batch took too long
    └── KafkaWriteError              records could not be written; their transaction was aborted
```

Errors cross process borders (worker to driver), so each survives `pickle`. Messages say what is wrong, where,
what would be valid and what to do; they never hold a secret.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


class DeltaworksError(Exception):
    """The root of all errors of this package.

    Args:
        message: what is wrong and where.
        hint: what to do about it.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  Hint: {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, dict(self.__dict__))


class ConfigurationError(DeltaworksError):
    """A setting, an argument of the command line or the environment is wrong; found before anything ran."""


class TerminalError(DeltaworksError):
    """Trying again gives the same failure: somebody has to change something."""


class TransientError(DeltaworksError):
    """Trying again may help."""


class QueryError(DeltaworksError):
    """Spark ended the query for a reason of its own, or code of ours failed in a way that nobody foresaw."""


class StackError(TransientError):
    """A component that runs around the pipeline (Kafka, Spark) does not come up, or went away.

    Args:
        log: the last lines of its log, shown below the message.
    """

    def __init__(self, message: str, *, hint: str | None = None, log: Sequence[str] = ()) -> None:
        super().__init__(message, hint=hint)
        self.log = tuple(log)

    def __str__(self) -> str:
        tail = "".join(f"\n  | {line}" for line in self.log)
        return self.message + tail + (f"\n  Hint: {self.hint}" if self.hint else "")


class ControlUnavailableError(TransientError):
    """The registry does not answer, or has no tables yet. Streams run on; who runs what cannot be changed."""


class StateError(TransientError):
    """A store of the host cannot be read, so no record is to blame; the batch is run again."""


class DiskFullError(TransientError):
    """A disk has no room, ours or the broker's. Nothing is lost; the stream goes on when there is room."""


class KafkaReadError(TransientError):
    """The broker did not answer."""


class KafkaWriteError(TransientError):
    """Records could not be written; their transaction was aborted."""


class SinkError(TransientError):
    """A sink of the author's own has failed; its batch was aborted, and runs again."""


class BatchTooLongError(TransientError):
    """The broker ended a transaction because its batch took too long; as it is, it would take as long again."""


class KafkaTopicError(TerminalError):
    """A topic is missing, or is not as the pipeline needs it."""


class IncompatibleCheckpointError(TerminalError):
    """A checkpoint was written by a plan that this one cannot continue."""


class IntentError(TerminalError):
    """What was done under a batch id is not what this stream means by it; going on would lose or double records."""


class RecordsGoneError(TerminalError):
    """Records that must be read are no longer in Kafka, nor in an archive."""


class LeaseError(TerminalError):
    """Another driver holds the lease of the same checkpoint."""


class FencedError(LeaseError):
    """A newer generation of the pipeline has taken over; this one may not write any more."""


class LineageError(LeaseError):
    """Another stream of the same name owns the pipeline at this Kafka; both would write everything twice."""


class ConflictError(TerminalError):
    """What was asked for does not fit what somebody else does, or has done meanwhile: a deployment, another replay."""


class TableError(TerminalError):
    """A Delta table cannot take what it is given, or is not as it should be."""


class SerializationError(TerminalError):
    """Bytes that are not what a serde reads, or a value that it cannot write."""


class SetAsideError(TerminalError):
    """Somebody said that this record shall not be processed: it becomes a dead letter, whatever the pipeline says."""


class ProductionError(TerminalError):
    """A topic cannot take a record; the pipeline's error policy decides what becomes of it.

    Args:
        limit: how large records of the topic may be, in bytes; None: that is not what is wrong.
    """

    def __init__(self, message: str, *, hint: str | None = None, limit: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.limit = limit


@dataclass(frozen=True)
class RecordPosition:
    """Which record, and at which operator."""

    operator: str
    """Name of the node, as `describe()` shows it."""
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    origin: str | None = None
    """The user's line that made the operator."""

    def __str__(self) -> str:
        where = f"{self.topic}-{self.partition} offset {self.offset} (timestamp {self.timestamp_ms})"
        return f"{where}, operator {self.operator}" + (f" from {self.origin}" if self.origin else "")


class StreamsError(TerminalError):
    """An operator failed on a record, and the pipeline says `fail`; the cause is chained.

    Args:
        message: what failed.
        position: the record and the operator.
    """

    def __init__(self, message: str, *, position: RecordPosition | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.position = position

    def __str__(self) -> str:
        text = self.message
        if self.position is not None:
            text += f"\n  at {self.position}"
        return text + (f"\n  Hint: {self.hint}" if self.hint else "")


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a topology."""

    what: str
    where: str | None = None
    """The user's line, such as `jobs/orders.py:41`."""
    hint: str | None = None

    def __str__(self) -> str:
        lines = [f"  {self.what}"]
        if self.where:
            lines.append(f"    at {self.where}")
        if self.hint:
            lines.append(f"    Hint: {self.hint}")
        return "\n".join(lines)


class TopologyError(DeltaworksError):
    """A topology cannot be built. Lists every problem, not only the first.

    Args:
        topology: name of the topology or pipeline.
        problems: at least one.
    """

    def __init__(self, topology: str, problems: Sequence[Problem]) -> None:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(f"{count} in topology '{topology}'\n" + "\n".join(map(str, problems)))
        self.topology = topology
        self.problems = tuple(problems)


def _rebuild(kind: type[DeltaworksError], args: tuple[Any, ...], state: dict[str, Any]) -> DeltaworksError:
    """Keyword-only arguments defeat the pickling that exceptions inherit."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error
