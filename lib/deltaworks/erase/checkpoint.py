"""A checkpoint without a person's data in the place of the one that has it, and the end of all older ones.

```
made       beside the old checkpoint, which is as it was
switched   the stream goes on with it, from the same offsets, as the same query: tables and Kafka see no change
complete   no older checkpoint has any state; none can run again
```

Whoever is killed in between calls again with the same id, and it is completed. The caller holds the lease.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from deltaworks import formats
from deltaworks.control.paths import CheckpointPaths, PipelinePaths
from deltaworks.faults import reach
from deltaworks.files import delete, remove_tree, replace_file, sync_folder
from deltaworks.spark import handover
from deltaworks.spark.handover import ERASED, OpenStore
from deltaworks.spark.stopped import StoppedStream

FORMAT = 1
"""Version of the record in a checkpoint that an erasure has made."""


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """What made the checkpoint, in a file of it."""

    format: int = FORMAT
    entries: dict[str, int]
    """Store -> the number of entries that went, or lost a part."""
    complete: bool = False
    """Whether the older checkpoints are deleted."""


def name_of(erasure_id: str) -> str:
    """The name of its checkpoint."""
    return f"{ERASED}{erasure_id}"


def read(paths: PipelinePaths, erasure_id: str) -> Made | None:
    """What an erasure has made; None: the stream has not switched to it."""
    if name_of(erasure_id) not in paths.switched:
        return None
    file = _record(paths.checkpoint_of(name_of(erasure_id)))
    return formats.read(file, Made, FORMAT, f"The record of an erasure {file}") or Made(entries={})


def make(
    stream: StoppedStream, *, erasure_id: str, last_batch: int, open_store: OpenStore, entries: dict[str, int]
) -> None:
    """Makes the checkpoint; the one that runs stays as it is.

    Args:
        stream: whose checkpoint.
        erasure_id: of the erasure.
        last_batch: the last batch of the checkpoint that runs.
        open_store: opens the stores, without the person.
        entries: how many entries of each store were theirs, once all stores were opened.
    """
    made = stream.make_next(name_of(erasure_id), last_batch, open_store)
    _save(made, Made(entries=entries))
    reach("erase.made")


def switch(paths: PipelinePaths, erasure_id: str) -> None:
    """Lets the stream go on with the checkpoint.

    Raises:
        ConflictError: the stream has moved on since it was made.
    """
    handover.switch(paths, name_of(erasure_id))
    reach("erase.switched")


def complete(paths: PipelinePaths, erasure_id: str, made: Made) -> Made:
    """Deletes the state of all checkpoints before this one, of those that were undone, and of those never switched to.

    In an object store too, and what belongs to them on this machine.

    Their plans and intents stay: they have offsets and code, and nothing of records.
    """
    if made.complete:
        return made
    switched = paths.switched
    before = switched[: switched.index(name_of(erasure_id))]
    for ended in (paths.first, *map(paths.checkpoint_of, before)):
        for folder in (*ended.all_of_spark, ended.local, ended.initial_state, ended.trash):
            _remove(folder)
            reach("erase.deleted")
        delete([ended.moved_pages])  # has bounds of rows
    for checkpoints in dict.fromkeys((paths.checkpoints, paths.root / paths.checkpoints.name)):
        for folder in _folders(checkpoints):
            if folder.name not in switched:
                _remove(folder)
                reach("erase.deleted")
    _remove(paths.scratch)
    done = msgspec.structs.replace(made, complete=True)
    _save(paths.checkpoint_of(name_of(erasure_id)), done)
    return done


def _folders(checkpoints: Path) -> Iterator[Path]:
    """The folders of all checkpoints, hidden ones too."""
    try:
        yield from list(checkpoints.iterdir())
    except FileNotFoundError:
        return


def _remove(folder: Path) -> None:
    if folder.exists():
        remove_tree(folder, strict=True)
    if folder.parent.exists():
        sync_folder(folder.parent)


def _record(checkpoint: CheckpointPaths) -> Path:
    return checkpoint.root / "erased.json"


def _save(checkpoint: CheckpointPaths, made: Made) -> None:
    replace_file(_record(checkpoint), msgspec.json.format(msgspec.json.encode(made), indent=1), durable=True)
