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
"""A record failed or does not decode, and the pipeline's policy is to fail. Restart only with new code."""
UNAVAILABLE = 69
"""Kafka, Kafka Connect or Spark is not available. Restart later."""
INTERNAL = 70
"""Anything else. Restart with back-off."""
LEASE = 73
"""Another driver holds the checkpoint. Do not restart."""
DISK_FULL = 74
"""A disk is full. Restart with back-off until there is room."""
CONFLICT = 75
"""Somebody else works on the same thing or has changed it meanwhile. Do not restart."""
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
    """The exit code of an error, which tells a supervisor whether and when to restart."""
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
