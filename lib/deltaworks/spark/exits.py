"""Exit codes of a stream, and which of them forbid a restart (numbers of `sysexits.h`)."""

from __future__ import annotations

import re

from pyspark.errors import StreamingQueryException

OK = 0
DATA = 65
"""A function of the pipeline raised, or a record does not decode, and the pipeline says fail. Restart only new code."""
UNAVAILABLE = 69
"""Kafka did not answer. Restart later."""
INTERNAL = 70
"""Anything else. Restart with back-off."""
LEASE = 73
"""Another driver holds the checkpoint. Do not restart."""
CONFIG = 78
"""Topology, settings or checkpoint do not fit. Do not restart."""

NO_RESTART = frozenset({DATA, LEASE, CONFIG})

_CAUSE = re.compile(r"deltaworks\.errors\.(\w+): (.*?)(?=\n\s*(?:at |File |JVM stacktrace|$)|\Z)", re.S)
_CODES = {
    "StreamsError": DATA,
    "SerializationError": DATA,
    "TableError": DATA,
    "KafkaReadError": UNAVAILABLE,
    "KafkaWriteError": UNAVAILABLE,
}


def reason(error: StreamingQueryException) -> str:
    """What went wrong, without Spark's frames."""
    found = _CAUSE.search(str(error))
    return f"{found.group(1)}: {found.group(2).strip()}" if found else str(error).splitlines()[0]


def code_of(error: StreamingQueryException) -> int:
    found = _CAUSE.search(str(error))
    return _CODES.get(found.group(1), INTERNAL) if found else INTERNAL
