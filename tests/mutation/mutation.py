"""What a mutation of a safeguard is, and what the safeguard is against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

Patch = Callable[[Any, str, Any], None]
"""`setattr`, or that of pytest's `monkeypatch`."""


class Hole(Enum):
    """A way to lose records, or to have them twice, without an error."""

    CIRCLE = "a cycle that is tried again on its own result"
    TORN_TABLE = "a table's log or data that a loss of power has torn"
    TAKEN_BACK = "a checkpoint that was rewound, restored or repaired"
    LOCAL_STORE = "a local store after a crash of the machine"
    FOREIGN_WRITER = "somebody else who writes our tables"
    TOPIC_RECREATED = "a topic that was deleted and recreated"
    LATE_OR_OTHER_CODE = "a late writer, or other code in the middle of a batch"
    TWO_HOMES = "two homes at one Kafka, and markers that expire"
    RESCALED = "a stream that goes on with other tasks"
    TWO_MACHINES = "drivers on two machines that share an object store"
    ELSEWHERE = "tasks on other machines than their driver"
    OBJECT_STORE = "an object store whose answers are lost, late or wrong"
    ANSWERS = "another system that says something else when it is asked again"
    FORMAT = "records whose schemas change, or are in a registry that is away"


class Stall(Enum):
    """A way to stop, or to fail again and again, for ever."""

    OVERSIZED_BATCH = "a batch that is too large for memory"
    POISON_OUTPUT = "a record that its topic never takes"
    LONG_TRANSACTION = "a batch that is longer than its transaction may be"
    CLOCK_STEPS = "a clock that is set back or forward"
    FUTURE_TIMESTAMPS = "timestamps in microseconds, or far in the future"
    PATTERN_TOPIC = "a topic of a pattern whose log begins above 0"
    CORRUPT_STORE = "a local store that is corrupt"
    RETENTION = "retention that has passed the offset"
    PARTITIONS = "a topic that got partitions"
    HEARTBEAT = "something long that stops the heartbeat"
    TORN_COMMAND = "a file of a command that is empty or torn"
    DISK_FULL = "a disk without room"
    HANGING_CLIENT = "a client of Kafka that hangs"
    REBALANCE = "workers of Kafka Connect that share out their tasks anew"
    SUSPENDED_WRITER = "a process that is suspended while it writes a local store"


class Breach(Enum):
    """A way in which something is done or told that nobody wanted."""

    TWICE = "a record that counts twice"
    TOO_SOON = "something told before it is true"
    OTHER = "an answer that is not what a store holds as of its batch"
    NOT_APPROVED = "something published that nobody may, or has to be asked about"
    UNCHECKED = "a connector that is changed before all checks have passed"
    SECRET = "a secret that is shown"


@dataclass(frozen=True)
class Mutation:
    """One safeguard taken away.

    Args:
        of: what the safeguard is against; None: it is a mistake that the checks of results have to find.
        apply: takes it away, in this process, for who imports the product later and for who has done so.
        tests: of pytest; each of them must turn red.
    """

    of: Hole | Stall | Breach | None
    apply: Callable[[Patch], None]
    tests: tuple[str, ...]


def nothing(*args: Any, **options: Any) -> None:
    """In the place of a check."""
