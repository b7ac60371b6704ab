"""Why a query failed: the error of ours inside Spark's exception."""

from __future__ import annotations

import re

from deltaworks import disk, errors
from deltaworks.errors import ConfigurationError, DeltaworksError, QueryError, TopologyError

_END = r"^\s*at [\w.$]+\(|^JVM stacktrace|^\S+Exception|\s+SQLSTATE: |^=== Streaming|\Z"
_CAUSE = re.compile(rf"^deltaworks\.errors\.(\w+): (.*?)(?={_END})", re.S | re.M)


def as_error(error: Exception) -> DeltaworksError:
    """The last error of ours in the chain, without Spark's frames; its exit code is that of a driver that raised it."""
    found = _CAUSE.findall(str(error))
    if not found and (full := disk.spark_error(str(error))) is not None:
        return full
    if not found:
        return QueryError(str(error).strip().splitlines()[0])
    name, message = found[-1]
    kind = getattr(errors, name)
    if issubclass(kind, TopologyError):  # is made from problems, not from a text
        kind = ConfigurationError
    rebuilt: DeltaworksError = kind(f"{name}: {message.strip()}")
    return rebuilt
