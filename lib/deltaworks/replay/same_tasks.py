"""Makes sure that a replay runs all of its batches with the same tasks, or is refused.

A stream that was rescaled has more tasks since then, and its state was spread over them. A replay has the tasks of now:
before, records of a key were in the partition of another task.
"""

from __future__ import annotations

from collections.abc import Iterator

from deltaworks.control.checkpoint import stored_plan
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import ConfigurationError
from deltaworks.replay.model import ReplayPlan
from deltaworks.spark.handover import RESCALED


def rescaled(paths: PipelinePaths) -> Iterator[int]:
    """The first batches of the checkpoints of rescales, in order."""
    for name in paths.switched:
        if name.startswith(RESCALED) and (plan := stored_plan(paths.checkpoint_of(name).plan)) is not None:
            yield plan.first_batch


def require(plan: ReplayPlan) -> None:
    """Raises `ConfigurationError` if a replay has batches from before a rescale, and later ones.

    Args:
        plan: with the batch that it begins with.
    """
    begin = plan.begin
    first = plan.first_batch if begin is None or begin.topics else begin.batch
    for batch in plan.rescaled:
        if first < batch <= plan.last_batch:
            why = f" ({plan.needs_all})" if plan.needs_all else ""
            raise ConfigurationError(
                f"The replay would read batches {first:,} to {plan.last_batch:,}{why}, but since batch {batch:,} the "
                "stream has had other tasks (deltaworks rescale): a key was in another partition before.",
                hint="days whose windows and joins need no batch before that can be replayed: --from DAY",
            )
