"""Exit codes, and which of them forbid a restart (numbers of `sysexits.h`)."""

from __future__ import annotations

from deltaworks.errors import (
    ConfigurationError,
    ConflictError,
    DeltaworksError,
    DiskFullError,
    IncompatibleCheckpointError,
    IntentError,
    KafkaTopicError,
    LeaseError,
    RecordsGoneError,
    TerminalError,
    TopologyError,
    TransientError,
)

OK = 0
DATA = 65
"""A function of the pipeline raised, or a record does not decode, and the pipeline says fail. Restart only new code."""
UNAVAILABLE = 69
"""Kafka or Spark is not available. Restart later."""
INTERNAL = 70
"""Anything else. Restart with back-off."""
LEASE = 73
"""Another driver holds the checkpoint. Do not restart."""
DISK_FULL = 74
"""A disk has no room. Restart with back-off, for as long as it lasts."""
CONFLICT = 75
"""Somebody else works on the same, or has changed it meanwhile. Do not restart."""
CONFIG = 78
"""Topology, settings, environment or checkpoint do not fit. Do not restart."""
INTERRUPTED = 130
"""Ctrl-C."""

_DO_NOT_FIT = (
    TopologyError,
    ConfigurationError,
    IncompatibleCheckpointError,
    IntentError,
    RecordsGoneError,
    KafkaTopicError,
)

NO_RESTART = frozenset({DATA, LEASE, CONFLICT, CONFIG})


def code_of(error: DeltaworksError | type[DeltaworksError]) -> int:
    """What a supervisor needs to know of an error: whether to start again, and when."""
    kind = error if isinstance(error, type) else type(error)
    if issubclass(kind, LeaseError):
        return LEASE
    if issubclass(kind, ConflictError):
        return CONFLICT
    if issubclass(kind, _DO_NOT_FIT):
        return CONFIG
    if issubclass(kind, TerminalError):
        return DATA
    if issubclass(kind, DiskFullError):
        return DISK_FULL
    return UNAVAILABLE if issubclass(kind, TransientError) else INTERNAL
