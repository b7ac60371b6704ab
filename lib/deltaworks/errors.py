"""The errors that deltaworks raises on purpose.

```
DeltaworksError                      the root: catch this to catch all
├── TopologyError                    a topology cannot be built: every problem at once, each with the user's line
├── ConfigurationError               a setting or the environment is wrong; nothing has run yet
├── TerminalError                    a retry would fail the same way
│   ├── SerializationError           bytes that do not decode, a value that does not encode
│   ├── ProductionError              a topic cannot take a record: it is too large, or there is no such topic
│   ├── StreamsError                 an operator failed on a record, and the pipeline's policy is `fail`
│   ├── SetAsideError                somebody set a record aside
│   ├── CallOutError                 another system has given no answer about a record
│   ├── AnswersError                 an answer of another system must have been recorded, and is not
│   ├── IncompatibleCheckpointError  the plan does not fit the checkpoint
│   ├── IntentError                  a batch id was used for another batch than this stream's
│   ├── RecordsGoneError             records that must be read are no longer in Kafka, nor in an archive
│   ├── LeaseError                   another driver works on the same checkpoint
│   │   ├── FencedError              a newer generation of the pipeline has taken over
│   │   └── LineageError             another stream of the same name owns the pipeline on this Kafka
│   ├── ConflictError                the request conflicts with what somebody else does or has done
│   ├── TableError                   a Delta table cannot take a write, or is not in the expected state
│   ├── StoreQueryError              a question about a store cannot be answered as it was asked
│   │   └── NoSuchStoreError         the pipeline has no store of this name that can be read
│   └── KafkaTopicError              a topic is missing, or does not fit the pipeline
├── QueryError                       Spark ended the query for a reason of its own
└── TransientError                   a retry may help
    ├── StackError                   a component (Kafka, Spark) does not start or has stopped
    ├── ControlUnavailableError      the registry (PostgreSQL) does not answer
    ├── StateError                   a store of the host cannot be read
    │   └── StoreUnavailableError    a store of a running stream cannot be read now
    ├── DiskFullError                a disk is full; the stream goes on when there is room
    ├── KafkaReadError               the broker did not answer
    ├── SchemasUnavailableError      the schema registry does not answer, and a schema of it is not known yet
    ├── ConnectUnavailableError      Kafka Connect does not answer, fails, or goes on rebalancing
    ├── SinkError                    an author's sink failed; its batch was aborted
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
    """A setting, a command-line argument or the environment is wrong; nothing has run yet."""


class TerminalError(DeltaworksError):
    """A retry would fail the same way: somebody has to change something."""


class TransientError(DeltaworksError):
    """A retry may help."""


class QueryError(DeltaworksError):
    """Spark ended the query for a reason of its own, or our code failed unexpectedly."""


class StackError(TransientError):
    """A component that the pipeline needs (Kafka, Spark) does not start or has stopped.

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
    """The registry does not answer or has no tables yet. Streams keep running, but none can be deployed or stopped."""


class StateError(TransientError):
    """A store of the host cannot be read. No record is to blame, and the batch runs again."""


class StoreUnavailableError(StateError):
    """A store of a running stream cannot be read now: it is being filled, or the stream goes on too fast. Ask again."""


class DiskFullError(TransientError):
    """A disk is full, ours or the broker's. Nothing is lost; the stream goes on when there is room."""


class KafkaReadError(TransientError):
    """The broker did not answer."""


class SchemasUnavailableError(TransientError):
    """The schema registry does not answer, and a schema of it is needed that is not known yet."""


class ConnectUnavailableError(TransientError):
    """Kafka Connect does not answer, fails, or goes on rebalancing."""


class KafkaWriteError(TransientError):
    """Records could not be written; their transaction was aborted."""


class SinkError(TransientError):
    """An author's sink failed; its batch was aborted and runs again."""


class BatchTooLongError(TransientError):
    """The broker ended a transaction because its batch took too long; unchanged, it would take as long again."""


class KafkaTopicError(TerminalError):
    """A topic is missing, or does not fit the pipeline."""


class IncompatibleCheckpointError(TerminalError):
    """A checkpoint was written by a plan that this one cannot continue."""


class IntentError(TerminalError):
    """A batch id was used for another batch than this stream's; going on would lose or duplicate records."""


class RecordsGoneError(TerminalError):
    """Records that must be read are no longer in Kafka, nor in an archive."""


class LeaseError(TerminalError):
    """Another driver holds the lease of the same checkpoint."""


class FencedError(LeaseError):
    """A newer generation of the pipeline has taken over; this one may no longer write."""


class LineageError(LeaseError):
    """Another stream of the same name owns the pipeline on this Kafka; running both would write everything twice."""


class ConflictError(TerminalError):
    """The request conflicts with what somebody else does or has done meanwhile: a deployment, another replay."""


class TableError(TerminalError):
    """A Delta table cannot take a write, or is not in the expected state."""


class StoreQueryError(TerminalError):
    """A question about a store cannot be answered as it was asked: another kind of store, a key of another type."""


class NoSuchStoreError(StoreQueryError):
    """The pipeline has no store of this name that can be read."""


class SerializationError(TerminalError):
    """A serde cannot decode some bytes or cannot encode a value."""


class SetAsideError(TerminalError):
    """Somebody set this record aside: it becomes a dead letter, whatever the pipeline's error policy."""


class CallOutError(TerminalError):
    """Another system has given no answer about a record; the pipeline's error policy decides what happens to it."""


class AnswersError(TerminalError):
    """An answer of another system must have been recorded, and is not, or belongs to another question."""


class ProductionError(TerminalError):
    """A topic cannot take a record; the pipeline's error policy decides what happens to it.

    Args:
        limit: the topic's largest record size in bytes; None if the size is not the problem.
    """

    def __init__(self, message: str, *, hint: str | None = None, limit: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.limit = limit


@dataclass(frozen=True)
class RecordPosition:
    """A record and the operator that processed it."""

    operator: str
    """Name of the node, as `describe()` shows it."""
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    origin: str | None = None
    """The line of the user's code that made the operator."""

    def __str__(self) -> str:
        where = f"{self.topic}-{self.partition} offset {self.offset} (timestamp {self.timestamp_ms})"
        return f"{where}, operator {self.operator}" + (f" from {self.origin}" if self.origin else "")


class StreamsError(TerminalError):
    """An operator failed on a record, and the pipeline's policy is `fail`; the cause is chained.

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
    """The line of the user's code, such as `jobs/orders.py:41`."""
    hint: str | None = None

    def __str__(self) -> str:
        lines = [f"  {self.what}"]
        if self.where:
            lines.append(f"    at {self.where}")
        if self.hint:
            lines.append(f"    Hint: {self.hint}")
        return "\n".join(lines)


class TopologyError(DeltaworksError):
    """A topology cannot be built; the error lists every problem, not only the first.

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
    """Rebuilds a pickled error: the inherited pickling does not support keyword-only arguments."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error
