"""The records that were processed, according to Spark's checkpoint. For its plan see `control.checkpoint`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from deltaworks.kafka.ranges import Offsets


def committed_offsets(checkpoint: Path) -> Offsets | None:
    """Where the last committed batch of Spark's checkpoint ended; None if there is none."""
    last = _last(checkpoint / "commits")
    if last is None:
        return None
    lines = (checkpoint / "offsets" / str(last)).read_text().splitlines()
    return msgspec.json.decode(lines[-1], type=Offsets)


def begun_batch(checkpoint: Path) -> int | None:
    """The last batch that Spark has planned, by its own count, committed or not; None if there is none."""
    return _last(checkpoint / "offsets")


def _last(log: Path) -> int | None:
    return max((int(path.name) for path in log.glob("*") if path.name.isdecimal()), default=None)
