"""Losses that somebody has accepted for a stream: a recreated topic, or records that are gone.

A stream never accepts them by itself, since it loses records. An acceptance names what the broker has now, and the next
driver goes on from there, once. It stays in the file.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from deltaworks import formats
from deltaworks.files import replace_file
from deltaworks.kafka.ranges import Offsets

FORMAT = 1


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was accepted for one checkpoint."""

    format: int = FORMAT
    topics: dict[str, str] = {}
    """Recreated topic -> its new id; the topic is read from its beginning."""
    begins: Offsets = {}
    """The first offsets of topics from which unread records were removed; earlier records are given up."""


def read(path: Path) -> Accepted:
    """Reads what was accepted so far.

    Raises:
        IncompatibleCheckpointError: the file cannot be read.
    """
    what, other = (
        f"{path}, which lists accepted losses,",
        "move it away and accept them again: deltaworks accept --help",
    )
    return formats.read(path, Accepted, FORMAT, what, other=other) or Accepted()


def add(path: Path, *, topics: dict[str, str], begins: Offsets) -> Accepted:
    """Accepts more losses, durably; the caller has checked that no driver runs.

    For a recreated topic, offsets that were given up in the earlier topic no longer count.
    """
    before = read(path)
    kept = {topic: parts for topic, parts in before.begins.items() if topic not in topics}
    merged = {topic: kept.get(topic, {}) | begins.get(topic, {}) for topic in {*kept, *begins}}
    now = Accepted(topics=before.topics | topics, begins=merged)
    replace_file(path, msgspec.json.format(msgspec.json.encode(now), indent=1), durable=True)
    return now
