"""What the code of a pipeline says of it: graph, stores, tables.

Code of a project, its connectors too, runs in a process of its own, `python -m deltaworks.ui.described [NAME]`:
whatever it does, the server goes on. Of a pipeline it is the code that the stream runs from, if that is archived here.
"""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from deltaworks import clock, extras
from deltaworks.control import heartbeat, jobs, retention
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import ConfigurationError, DeltaworksError
from deltaworks.settings import Settings
from deltaworks.ui.graph import drawn
from deltaworks.ui.told import Connectors, Described, StoreDescribed, Unreadable

S = TypeVar("S", bound=msgspec.Struct)
_SECONDS = 60
_AGAIN_S = 60.0
"""After so long, code that has failed is loaded again: what it needs besides itself may be there by then."""
_FRAME = b"\0\0deltaworks\0\0"


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
    try:
        answer = _asked(settings, Connectors)
    except ConfigurationError as error:
        return Connectors(connectors=[], problem=error.message)
    return Connectors(connectors=[], problem=answer.error) if isinstance(answer, Unreadable) else answer


def _answer(settings: Settings, name: str) -> Described | Unreadable:
    try:
        return _asked(settings, Described, name)
    except ConfigurationError as error:  # whoever asks next does not wait for the same
        return Unreadable(error=error.message, hint=error.hint)


def _asked(settings: Settings, kind: type[S], *names: str) -> S | Unreadable:
    """The answer of a process that loads code of the project.

    Raises:
        ConfigurationError: it gives none.
    """
    command = [sys.executable, "-m", "deltaworks.ui.described", *names]
    environment = settings.process_environment() | {"PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    what = f"jobs/{names[0]}.py" if names else "The code of the connectors"
    try:
        run = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigurationError(f"{what} was not imported within {_SECONDS} s.") from error
    _, _, framed = run.stdout.partition(_FRAME)
    last = framed.partition(_FRAME)[0]
    try:
        if run.returncode != 0:
            return msgspec.json.decode(last, type=Unreadable)
        return msgspec.json.decode(last, type=kind)
    except msgspec.DecodeError as error:
        raise ConfigurationError(
            f"{what} cannot be described.", hint="`deltaworks topology` and `deltaworks connect plan` say more"
        ) from error


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


def main(*names: str) -> int:
    """Writes the answer, between marks: what the code prints comes before or after it.

    Args:
        names: the pipeline; none: connectors.
    """
    settings, out = Settings.from_environment(), sys.stdout.buffer
    answer: Described | Connectors | Unreadable
    try:
        answer = describe(settings, names[0]) if names else _connectors(settings)
    except DeltaworksError as error:
        answer = Unreadable(error=error.message, hint=error.hint)
    sys.stdout.flush()
    out.write(_FRAME + msgspec.json.encode(answer) + _FRAME)
    out.flush()
    return int(isinstance(answer, Unreadable))


if __name__ == "__main__":
    signal.alarm(_SECONDS)  # also if the server, which would end it, has gone
    sys.exit(main(*sys.argv[1:]))
