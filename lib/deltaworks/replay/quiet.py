"""Makes sure that nothing of a pipeline is under way that a change of its state or tables would get in the way of."""

from __future__ import annotations

from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import ConflictError
from deltaworks.lakehouse.publish import corrections, ownership, publication, sink_changes
from deltaworks.replay import runs
from deltaworks.settings import Settings


def require(settings: Settings, paths: PipelinePaths, name: str, *, command: str, replays: str, rows: str = "") -> None:
    """Raises `ConflictError` if a replay, a publication, a hand-over or corrections are not finished.

    Args:
        settings: where the pipeline runs.
        paths: paths of the pipeline.
        name: of the pipeline.
        command: what is to be done after them, such as `erase`.
        replays: why replays that are not finished are in the way.
        rows: why corrections are, as the end of a sentence.
    """
    if open_runs := [plan.run_id for plan in runs.unfinished(settings, name)]:
        raise ConflictError(
            f"Replays of {name!r} are not finished{replays}: {', '.join(open_runs)}.",
            hint=f"deltaworks replay {name} --resume {open_runs[0]}, or deltaworks discard {open_runs[0]}",
        )
    if waiting := corrections.unsent(paths.publications):
        raise ConflictError(
            f"Corrections of {waiting[0].run_id} are not sent to {waiting[0].topic} yet{rows}.",
            hint=f"repeat the publication or the rollback, or run the DAG streams__maintenance; then {command}",
        )
    if unchanged := sink_changes.waiting(paths.publications):
        raise ConflictError(
            f"Corrections of {unchanged[0].run_id} wait for the sinks {', '.join(unchanged[0].waiting)}{rows}.",
            hint=f"run the DAG streams__maintenance, or deltaworks sinks {name} --give-up NAME; then {command}",
        )
    if begun := [*publication.unfinished(paths.publications), *ownership.unfinished(paths.handovers)]:
        raise ConflictError(
            f"A publication or a hand-over was interrupted: {', '.join(begun)}.",
            hint=f"repeat what was asked for; then {command}",
        )
