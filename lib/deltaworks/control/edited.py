"""Finds out what an edit of the code means for a pipeline, in a process of its own, which imports the code anew.

`python -m deltaworks.control.edited NAME` answers with a `Verdict`; with `--start-over`, the pipeline is started over
first (`control/start_over.py`).
"""

from __future__ import annotations

import sys
from typing import Literal

import msgspec

from deltaworks.control import jobs, preflight, project_code, start_over
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import ConfigurationError, DeltaworksError, IncompatibleCheckpointError
from deltaworks.lakehouse.schema import plan_schemas
from deltaworks.settings import Settings

Fit = Literal["goes on", "starts", "another plan", "fails"]
_PATIENCE_S = 120


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the current code of a pipeline can run."""

    fit: Fit
    """`goes on` with its checkpoint; `starts` without one; the checkpoint is of `another plan`; the code `fails`."""
    reason: str = ""
    """What is wrong, with the author's line if there is one."""
    tables: tuple[str, ...] = ()
    """The tables that the code writes, without that of dead letters."""
    dead_letter_table: str | None = None
    dead_letter_topic: str | None = None
    deleted: tuple[str, ...] = ()
    """Tables and topics that starting over deletes, if the checkpoint is of another plan."""


def judge(settings: Settings, name: str) -> Verdict:
    """Tries the code of this process; changes nothing."""
    try:
        pipeline = jobs.load(settings, name)
        plan, letters = pipeline.plan(), pipeline.dead_letters
        tables = tuple(schema.name for schema in plan_schemas(plan.tables, None))
        try:
            kept = preflight.fit(settings, pipeline, plan).kept
        except IncompatibleCheckpointError as error:
            return Verdict(fit="another plan", reason=error.message, deleted=_made(settings, pipeline))
    except DeltaworksError as error:
        return Verdict(fit="fails", reason=str(error))
    return Verdict(
        fit="starts" if kept is None else "goes on",
        tables=tables,
        dead_letter_table=letters.table,
        dead_letter_topic=letters.topic,
    )


def _made(settings: Settings, pipeline: Pipeline) -> tuple[str, ...]:
    """What starting over would delete; empty: the pipeline cannot start over here."""
    try:
        found = start_over.find(settings, pipeline)
    except ConfigurationError:
        return ()
    return (*found.tables, *found.topics)


def ask(settings: Settings, name: str, *, over: bool = False) -> Verdict:
    """The verdict of another process, which imports the code as it is now.

    Args:
        settings: of the home.
        name: the pipeline.
        over: delete first what the pipeline has made.
    """
    what, over_too = f"jobs/{name}.py", ["--start-over"] if over else []
    try:
        return project_code.ask(
            settings,
            __name__,
            name,
            *over_too,
            kind=Verdict,
            what=what,
            patience_s=_PATIENCE_S,
            folder=settings.project,
        )
    except ConfigurationError as error:
        return Verdict(fit="fails", reason=error.message)


def main() -> None:
    """Hands over the verdict."""
    name, over = sys.argv[1], "--start-over" in sys.argv[2:]
    settings = Settings.from_environment()
    try:
        if over:
            start_over.start_over(settings, jobs.load(settings, name))
        verdict = judge(settings, name)
    except DeltaworksError as error:
        verdict = Verdict(fit="fails", reason=str(error))
    project_code.answer(verdict)


if __name__ == "__main__":
    main()
