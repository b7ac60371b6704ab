"""Why a query failed: the error of ours inside Spark's exception."""

from __future__ import annotations

import re

from pyspark.errors import StreamingQueryException

from deltaworks import errors, exits

_CAUSE = re.compile(
    r"^deltaworks\.errors\.(\w+): (.*?)(?=^\s*at [\w.$]+\(|^JVM stacktrace|^\S+Exception|\Z)", re.S | re.M
)


def reason(error: StreamingQueryException) -> str:
    """What went wrong, without Spark's frames: the last error of ours in the chain."""
    found = _CAUSE.findall(str(error))
    return f"{found[-1][0]}: {found[-1][1].strip()}" if found else str(error).strip().splitlines()[0]


def code_of(error: StreamingQueryException) -> int:
    """The exit code for it."""
    found = _CAUSE.findall(str(error))
    kind = getattr(errors, found[-1][0], None) if found else None
    return exits.INTERNAL if kind is None else exits.code_of(kind)
