"""What has to be done to a stream while no driver of it runs; one that runs is stopped for it, and started after it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from deltaworks.control import actions, code, fence
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.registry import Registry
from deltaworks.errors import ControlUnavailableError, DeltaworksError
from deltaworks.settings import Settings

Report = Callable[[str], None]


def between_drivers(
    settings: Settings,
    name: str,
    act: Callable[[int, Callable[[], None]], None],
    is_untouched: Callable[[], bool],
    *,
    by: str,
    report: Report,
    new_code: bool = False,
) -> None:
    """Does something while no driver runs; if one should, it is stopped for it, and another one started after it.

    If this process dies before it is decided that the next driver runs new code, whoever restarts the stream uses the
    code of before.

    Args:
        settings: where the pipeline runs.
        name: name of the pipeline.
        act: gets the generation, and what to call once drivers can only start with the new code.
        is_untouched: whether `act` has changed nothing, so that the stream goes on as it was if there was an error.
        by: who wants it.
        report: called with lines of progress.
        new_code: the next driver runs the code of the project; else that of the one before.

    Raises:
        DeltaworksError: from `act`, or as `actions.deploy`.
    """
    registry = Registry.of(settings)
    record = None
    with suppress(ControlUnavailableError):  # then the lease says whether one runs
        record = registry.pipeline(name)
    if record is None or record.desired == "stopped":
        act(fence.read(PipelinePaths.of(settings, name).fence) + 1, lambda: None)
        return
    before = registry.deployments(name, limit=1)[0]
    if new_code:
        runs = code.archive(settings) if settings.run_from == "archive" else None
    else:
        runs = actions.code_of(settings, before)

    def launch(generation: int) -> None:
        act(generation, lambda: None if runs is None else registry.takes_code(name, generation, runs.digest))

    try:
        actions.deploy(
            settings,
            name,
            before.options,
            runs=runs,
            until_launch=None if runs is None else before,
            requested_by=by,
            before_launch=launch,
            report=report,
        )
    except DeltaworksError:
        if is_untouched():
            with suppress(DeltaworksError):  # the first error is the one that matters
                report("the stream goes on as it was")
                runs = actions.code_of(settings, before)
                actions.deploy(settings, name, before.options, runs=runs, requested_by=by, report=report)
        raise
