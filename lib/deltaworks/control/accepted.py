"""What somebody has said that a stream may go on without: a topic that was made anew, records that are gone.

A stream does not do that by itself, since it loses records. Whoever says it names what the broker has now; the next
driver goes on from there, once, and forgets nothing: what was accepted stays in the file.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from deltaworks import formats
from deltaworks.files import replace_file
from deltaworks.kafka.ranges import Offsets

FORMAT = 1


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """All that was accepted for one checkpoint."""

    format: int = FORMAT
    topics: dict[str, str] = {}
    """Topic -> the id that it has since it was made anew; it is read from its beginning."""
    begins: Offsets = {}
    """Where topics begin since records were removed that had not been read; what lies before is given up."""


def read(path: Path) -> Accepted:
    """What was accepted so far.

    Raises:
        IncompatibleCheckpointError: the file cannot be read.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return Accepted()
    return formats.decode(
        content,
        Accepted,
        FORMAT,
        f"{path}, which says what the stream may go on without,",
        other="move it away and say it again: deltaworks accept --help",
    )


def add(path: Path, *, topics: dict[str, str], begins: Offsets) -> Accepted:
    """Accepts more, durably; for who has checked that no driver runs.

    Where a topic begins that was made anew, what was given up of the one before says nothing.
    """
    before = read(path)
    kept = {topic: parts for topic, parts in before.begins.items() if topic not in topics}
    merged = {topic: kept.get(topic, {}) | begins.get(topic, {}) for topic in {*kept, *begins}}
    now = Accepted(topics=before.topics | topics, begins=merged)
    replace_file(path, msgspec.json.format(msgspec.json.encode(now), indent=1), durable=True)
    return now
