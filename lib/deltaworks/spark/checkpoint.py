"""What Spark's checkpoint says of the records that were processed. What it was made for: `control.checkpoint`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from deltaworks.kafka.ranges import Offsets


def committed_offsets(checkpoint: Path) -> Offsets | None:
    """Where the last committed batch of Spark's checkpoint ended; None if there is none."""
    commits = [int(path.name) for path in (checkpoint / "commits").glob("*") if path.name.isdecimal()]
    if not commits:
        return None
    lines = (checkpoint / "offsets" / str(max(commits))).read_text().splitlines()
    return msgspec.json.decode(lines[-1], type=Offsets)
