"""Our documents that outlive the process that wrote them: JSON with a format version.

A document of another version is refused, as is an unreadable one. Nothing is misread, and nothing is changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from deltaworks.errors import DeltaworksError, IncompatibleCheckpointError

T = TypeVar("T")


def decode(
    content: bytes,
    kind: type[T],
    version: int,
    what: str,
    *,
    other: str = "deploy the version that wrote it",
    damaged: str | None = None,
    error: type[DeltaworksError] = IncompatibleCheckpointError,
) -> T:
    """Decodes a document.

    Args:
        content: the document, a JSON object with a field `format`.
        kind: the type to decode it to.
        version: the format version that we read.
        what: what the document is and where, as the beginning of a sentence.
        other: hint if another version wrote it.
        damaged: hint if it cannot be read; None: the same as `other`.
        error: the error to raise if it cannot be read.

    Raises:
        IncompatibleCheckpointError: it has another format version.
    """
    try:
        found = msgspec.json.decode(content, type=dict[str, Any])
        if found.get("format") == version:
            return msgspec.convert(found, kind)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as reason:
        raise error(f"{what} cannot be read: {reason}.", hint=damaged or other) from reason
    raise IncompatibleCheckpointError(
        f"{what} has format {found.get('format')}; this deltaworks reads format {version}.", hint=other
    )


def read(
    path: Path,
    kind: type[T],
    version: int,
    what: str,
    *,
    other: str = "deploy the version that wrote it",
    damaged: str | None = None,
    error: type[DeltaworksError] = IncompatibleCheckpointError,
) -> T | None:
    """Decodes the document in a file; None if there is no such file. The arguments are those of `decode`."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    return decode(content, kind, version, what, other=other, damaged=damaged, error=error)
