"""What the code of a pipeline says of it: graph, stores, tables.

Code of a project, its connectors too, runs in a process of its own, `python -m deltaworks.ui.described [NAME]`:
whatever it does, the server goes on. Of a pipeline it is the code that the stream runs from, if that is archived here.
"""

from __future__ import annotations

import dataclasses
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

from deltaworks import clock, extras
from deltaworks.control import heartbeat, jobs, project_code, retention
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import ConfigurationError, DeltaworksError
from deltaworks.settings import Settings
from deltaworks.ui.graph import drawn
from deltaworks.ui.told import Connectors, Described, StoreDescribed, Told, Unreadable

_SECONDS = 60
_AGAIN_S = 60.0
"""After so long, code that has failed is loaded again: what it needs besides itself may be there by then."""


@dataclasses.dataclass(frozen=True)
class Code:
    """The code of a pipeline, to know it again."""

    digest: str | None
    """Of the archive; None: the files of the project."""
    changed_ns: int
    """Of these files, the latest."""


@dataclasses.dataclass(frozen=True)
class _Known:
    """What code has said."""

    code: Code
    answer: Described | Unreadable
    at_s: float

    def holds_for(self, code: Code) -> bool:
        """Whether it need not be asked again."""
        failed = isinstance(self.answer, Unreadable) and clock.ticks_s() - self.at_s > _AGAIN_S
        return self.code == code and not failed


class Pipelines:
    """Describes pipelines, each once per version of its code."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._known: dict[str, _Known] = {}
        self._locks: dict[str, threading.Lock] = {}

    def described(self, name: str) -> Described:
        """What the code says; takes seconds the first time.

        Raises:
            ConfigurationError: there is no such pipeline, or its code fails.
        """
        settings, code = self._source(name)
        with self._locks.setdefault(name, threading.Lock()):
            known = self._known.get(name)
            if known is None or not known.holds_for(code):
                answer = _answer(settings, name)
                known = self._known[name] = _Known(code, answer, clock.ticks_s())
        if isinstance(known.answer, Unreadable):
            raise ConfigurationError(known.answer.error, hint=known.answer.hint)
        return known.answer

    def _source(self, name: str) -> tuple[Settings, Code]:
        settings, paths = self._settings, PipelinePaths.of(self._settings, name)
        beat = heartbeat.read(paths.heartbeat)
        digest = None if beat is None else retention.code_of(paths, beat.generation)
        if digest is not None and (settings.archives / digest / "jobs" / f"{name}.py").is_file():
            return dataclasses.replace(settings, code=settings.archives / digest), Code(digest, 0)
        return settings, Code(None, max(map(_changed_ns, settings.jobs.rglob("*.py")), default=0))


def _changed_ns(file: Path) -> int:
    with suppress(FileNotFoundError):  # it was removed just now, or is an editor's link to nothing
        return file.stat().st_mtime_ns
    return 0


def connectors(settings: Settings) -> Connectors:
    """The connectors of the project, as `deltaworks status` has them; none if it has no files of any."""
    if not (settings.jobs / "connectors").is_dir():
        return Connectors(connectors=[], problem=None)
    told = _asked(settings)
    if told.connectors is not None:
        return told.connectors
    return Connectors(connectors=[], problem=None if told.unreadable is None else told.unreadable.error)


def _answer(settings: Settings, name: str) -> Described | Unreadable:
    told = _asked(settings, name)
    return told.pipeline or told.unreadable or Unreadable(error=f"jobs/{name}.py cannot be described.")


def _asked(settings: Settings, *names: str) -> Told:
    """What a process says that loads code of the project, or that it says nothing: whoever asks next does not wait."""
    what = f"jobs/{names[0]}.py" if names else "the code of the connectors"
    try:
        return project_code.ask(settings, __name__, *names, kind=Told, what=what, patience_s=_SECONDS)
    except ConfigurationError as error:
        hint = "`deltaworks topology` and `deltaworks connect plan` say more"
        return Told(unreadable=Unreadable(error=error.message, hint=hint))


def describe(settings: Settings, name: str) -> Described:
    """What the code of a pipeline says; it runs here.

    Raises:
        DeltaworksError: there is no such pipeline, or its code fails.
    """
    pipeline = jobs.load(settings, name)
    plan = pipeline.plan()
    stages = (*plan.stages, *plan.global_stages)
    return Described(
        graph=drawn(plan),
        stores=tuple(
            StoreDescribed(name=store.name, kind=store.kind, stage=stage.number, retention_ms=store.retention_ms)
            for stage in stages
            for store in stage.stores
        ),
        tables=tuple(dict.fromkeys(node.table for stage in stages for node in stage.tables)),
        dead_letters=pipeline.dead_letters.table,
    )


def _connectors(settings: Settings) -> Connectors:
    try:
        from deltaworks.connectors.overview import overview
    except ModuleNotFoundError as error:
        if extras.missing(error) is None:
            raise
        return Connectors(connectors=[], problem=None)  # somebody runs streams beside, without the extra for these
    return Connectors.of(overview(settings))


def main(*names: str) -> None:
    """Hands over the answer.

    Args:
        names: the pipeline; none: connectors.
    """
    settings = Settings.from_environment()
    try:
        told = Told(pipeline=describe(settings, *names)) if names else Told(connectors=_connectors(settings))
    except DeltaworksError as error:
        told = Told(unreadable=Unreadable(error=error.message, hint=error.hint))
    project_code.answer(told)


if __name__ == "__main__":
    signal.alarm(_SECONDS)  # also if the server, which would end it, has gone
    main(*sys.argv[1:])
