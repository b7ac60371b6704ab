"""Spark's checkpoint in an object store, at a start: the files that Spark needs are copied into a folder of their own.

No file is torn there, and no loss of power takes one. But a driver that was replaced may still write, and Spark's files
appear by copies, which no condition holds back. So nothing is moved or removed: what is whole and needed is copied
within the store, and the copy holds once it is complete (`control.checkpoint_folders`). What else there is, the last
folder before it included, is what a trash folder is on a disk.

What is needed is decided as on a disk (`checkpoint_recovery`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from deltaworks.control import checkpoint_folders
from deltaworks.errors import FencedError, IncompatibleCheckpointError, TransientError
from deltaworks.faults import reach
from deltaworks.files import link_all, side_by_side, write_new
from deltaworks.kafka.ranges import Offsets
from deltaworks.object_path import ObjectPath
from deltaworks.spark import checkpoint_files as layout
from deltaworks.spark import checkpoint_recovery
from deltaworks.spark.checkpoint_recovery import Plan, Settled, View

OffsetsOf = Callable[[int], Offsets | None]
"""The source offsets after a batch, according to its intent; None: there is no intent."""


def settle(root: ObjectPath, generation: int, offsets_of: OffsetsOf) -> Settled:
    """Makes a folder from which Spark starts without an error; called just before the start.

    Args:
        root: of the checkpoint (`CheckpointPaths.root`).
        generation: of the driver that starts.
        offsets_of: see `OffsetsOf`.

    Raises:
        IncompatibleCheckpointError: the checkpoint cannot be restored without a loss; nothing was changed.
        FencedError: a newer generation has started meanwhile.
    """
    view = View(checkpoint_folders.current(root), None, offsets_of)
    last = view.last()
    plan = view.plan(last)
    view.require_intents(plan)
    _copy(view, plan, root, generation)
    return Settled(
        committed=None if plan.committed == checkpoint_recovery.NONE else plan.committed,
        open=plan.open,
        was_committed=None if last == checkpoint_recovery.NONE else last,
        done=tuple(view.problems),
    )


def rewind(root: ObjectPath, generation: int, batch: int, offsets_of: OffsetsOf) -> None:
    """Makes a folder of the moment after a batch was committed and before the next one was planned.

    Args:
        root: see `settle`, also for the other arguments.
        generation: likewise.
        batch: by Spark's count; -1: before the first one.
        offsets_of: likewise.

    Raises:
        IncompatibleCheckpointError: the batch, or the state after it, does not exist; nothing was changed.
        FencedError: see `settle`.
    """
    view = View(checkpoint_folders.current(root), None, offsets_of)
    plan = view.plan(batch, keep_open=False)
    if plan.committed != batch:
        raise IncompatibleCheckpointError(
            "\n  ".join([f"the checkpoint {root} cannot go back to batch {batch}:", *view.problems[:5]]),
            hint=f"it goes back to batch {plan.committed}, or to the beginning (-1)",
        )
    _copy(view, plan, root, generation)


class FolderExpiry:
    """Removes the folders of earlier starts beside a query, once it has committed a batch.

    It is used like `checkpoint_sync.CheckpointSync`; what is in an object store is durable.
    """

    def __init__(self, root: ObjectPath) -> None:
        self._root = root
        self._done = False

    def committed(self, batch: int) -> None:
        """Notes that a batch is done."""
        if not self._done:
            checkpoint_folders.expire(self._root)
            self._done = True

    def abandon(self) -> None:
        """Has nothing to end."""

    def close(self) -> None:
        """Has nothing to sync."""


def _copy(view: View, plan: Plan, root: ObjectPath, generation: int) -> None:
    source = view.checkpoint
    try:
        target = checkpoint_folders.following(root, generation)
    except ValueError as error:
        raise FencedError(f"generation {generation} was replaced while it started: {error}") from None

    def moved(path: Path) -> Path:
        return target / path.relative_to(source)

    try:
        needed = [] if plan.from_scratch else view.needed(plan)
        described = [path for path in needed if _is_metadata(path)]
        writes = {moved(path): content for path, content in plan.writes.items() if not _is_metadata(path)}
        for path in described:
            if (found := layout.read_operator(path)) is None:
                raise FileNotFoundError(path)
            writes[moved(path)] = found.at(moved(path.parents[2])).encode()
        reach("checkpoint.before_copy")
        copied = [path for path in needed if path not in described and moved(path) not in writes]
        link_all((path, moved(path)) for path in copied)
    except FileNotFoundError as error:
        raise TransientError(
            f"A file of Spark's checkpoint was removed while it was copied: {error}.",
            hint="does another driver still run? The next start looks again",
        ) from error
    with side_by_side():
        for path, content in writes.items():
            write_new(path, content)
    reach("checkpoint.copied")
    checkpoint_folders.complete(root, target)


def _is_metadata(path: Path) -> bool:
    """Whether it describes an operator: with the place of its schema, which is another one in each folder."""
    return path.parent.parent.name == "_metadata"
