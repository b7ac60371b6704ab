"""Why a query failed: finds our own error inside Spark's exception."""

from __future__ import annotations

import re
import signal
import subprocess
from typing import Any

from py4j.protocol import Py4JError

from deltaworks import disk, errors
from deltaworks.errors import ConfigurationError, DeltaworksError, QueryError, StackError, TopologyError

_GONE_S = 2.0
"""How long a process whose connections are closed may take to end."""

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


def of_lost_jvm(jvm: subprocess.Popen[Any], error: Exception) -> StackError | None:
    """The real cause of an error that follows from the end of Spark's JVM; None: the JVM runs."""
    if isinstance(error, Py4JError | OSError):
        try:
            jvm.wait(timeout=_GONE_S)
        except subprocess.TimeoutExpired:
            return None
    if (code := jvm.poll()) is None:
        return None
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return StackError(
        f"Spark's JVM (process {jvm.pid}) {how}.",
        hint="a new start goes on where it stopped; if nobody sent the signal, the machine ran out of memory (see its "
        "log, and DELTAWORKS_DRIVER_MEMORY)",
    )
