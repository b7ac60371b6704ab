"""Documents of ours that outlive the process which wrote them: JSON with the version of its format.

Another version is refused, and so is what cannot be read: neither is ever taken for something else, and nothing is
changed.
"""

from __future__ import annotations

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
    """Reads one.

    Args:
        content: of the document, an object with a field `format`.
        kind: what it becomes.
        version: of the format that we read.
        what: it is, and where, as the beginning of a sentence.
        other: what to do if another version wrote it.
        damaged: what to do if it cannot be read; None: the same.
        error: raised if it cannot be read.

    Raises:
        IncompatibleCheckpointError: it has another format.
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
