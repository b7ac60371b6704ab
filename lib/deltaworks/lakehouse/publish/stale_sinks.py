"""The sinks that a publication has left with what was there before: one mark per sink and run.

```
publications/stale-sinks/<run>-<digest of the sink's name>.json
```

Publications, rollbacks and hand-overs mark a sink, and so does a system that refuses corrections. Somebody who has
written it anew takes the marks away.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from deltaworks import formats
from deltaworks.clock import wall_ms
from deltaworks.errors import TableError
from deltaworks.files import replace_file
from deltaworks.names import RUN

FORMAT = 1
"""Version of a mark."""
_FOLDER = "stale-sinks"


class StaleSink(msgspec.Struct, frozen=True, kw_only=True):
    """A sink that is not what the tables show."""

    sink: str
    run_id: str
    action: str
    """What has left it so: `publish`, `rollback`, `hand-over`."""
    why: str
    """Why it was not corrected, to follow "since"."""
    since_ms: int
    format: int = FORMAT


def mark(publications: Path, sink: str, run_id: str, action: str, why: str) -> None:
    """Marks a sink durably; one that the run has marked before keeps the time."""
    path = _path(publications, sink, run_id)
    there = _read(path)
    since_ms = wall_ms() if there is None else there.since_ms
    found = StaleSink(sink=sink, run_id=run_id, action=action, why=why, since_ms=since_ms)
    if found != there:
        replace_file(path, msgspec.json.format(msgspec.json.encode(found), indent=1), durable=True)


def unmark(publications: Path, sink: str, run_id: str) -> None:
    """Takes the mark of one run away."""
    _path(publications, sink, run_id).unlink(missing_ok=True)


def is_marked(publications: Path, sink: str, run_id: str, *, by: str | None = None) -> bool:
    """Whether a run has marked a sink, last by this action, and nobody has taken the mark away."""
    found = _read(_path(publications, sink, run_id))
    return found is not None and by in (None, found.action)


def clear(publications: Path, sink: str) -> int:
    """Takes all marks of a sink away; returns how many there were."""
    found = [each for each in all_of(publications) if each.sink == sink]
    for each in found:
        unmark(publications, sink, each.run_id)
    return len(found)


def all_of(publications: Path) -> Sequence[StaleSink]:
    """The marks of a pipeline, the oldest first.

    Raises:
        TableError: one cannot be read.
    """
    found = [each for path in (publications / _FOLDER).glob("*.json") if (each := _read(path)) is not None]
    return sorted(found, key=lambda each: (each.since_ms, each.sink))


def _read(path: Path) -> StaleSink | None:
    return formats.read(
        path,
        StaleSink,
        FORMAT,
        f"The mark of a stale sink, {path},",
        damaged="remove the file once its sink is written anew",
        error=TableError,
    )


def _path(publications: Path, sink: str, run_id: str) -> Path:
    root = publications / _FOLDER
    return root / f"{RUN.checked(run_id, root)}-{hashlib.blake2b(sink.encode(), digest_size=8).hexdigest()}.json"
