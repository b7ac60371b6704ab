"""Finds out from its log why a stream ended."""

from __future__ import annotations

import re
from pathlib import Path

from deltaworks import processes

_PYTHON_ERROR = re.compile(r"(error: |(?!org\.|java\.|py4j\.|pyspark\.)[\w.]*(Error|Exception): )")


def why(log: Path, *, after: int = 0) -> list[str]:
    """The Python errors at the end of a stream's log, or else its last lines: Spark repeats errors many times.

    Args:
        after: number of bytes at the beginning of the log that belong to earlier generations.
    """
    lines = processes.last_lines(log, 300, after=after)
    errors = [line for line in lines if _PYTHON_ERROR.match(line)]
    return list(dict.fromkeys(errors))[-5:] or lines[-15:]
