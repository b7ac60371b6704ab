"""Which archives of the code are kept: those that somebody runs from, may be restarted from, or has to finish a batch
with.

What each of the last generations of a pipeline runs from is noted in its folder, so that this needs no registry, and
generations that were started by hand count too.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from deltaworks import clock
from deltaworks.control import code
from deltaworks.control.code import Code
from deltaworks.control.intents import Intents
from deltaworks.control.paths import CheckpointPaths, PipelinePaths
from deltaworks.errors import DeltaworksError
from deltaworks.files import LocalFiles, replace_file
from deltaworks.settings import Settings

GENERATIONS = 5
"""Of each pipeline; who restarts or goes back to one of them finds its code."""
GRACE_S = 3_600.0
"""An archive that was asked for so recently may be about to be used."""


def note(paths: PipelinePaths, generation: int, digest: str) -> None:
    """A generation runs from an archive; the oldest notes go."""
    replace_file(paths.codes / str(generation), digest.encode(), durable=True)
    for old in sorted(_noted(paths), reverse=True)[GENERATIONS:]:
        (paths.codes / str(old)).unlink(missing_ok=True)


def code_of(paths: PipelinePaths, generation: int) -> str | None:
    """The digest of the code of a generation; None: it is too old, or did not run from an archive."""
    with suppress(FileNotFoundError):
        return (paths.codes / str(generation)).read_text() or None
    return None


def named(settings: Settings) -> set[str]:
    """The archives that the last generations of all pipelines, and the last batches of all checkpoints, name."""
    found: set[str] = set()
    for folder in settings.pipelines.glob("*"):
        paths = PipelinePaths(folder)
        found |= {digest for generation in _noted(paths) if (digest := code_of(paths, generation))}
        for checkpoint in (folder, *(folder / "checkpoints").glob("*")):
            last = Intents(LocalFiles(CheckpointPaths(checkpoint).intents)).last()
            if last is not None:
                found.add(last.code)
    return found


def expire(settings: Settings, keep: Collection[str], *, grace_s: float = GRACE_S) -> list[str]:
    """Removes all other archives, but none that a process runs from, or that was asked for a moment ago.

    Returns:
        The digests of those that are gone.
    """
    gone = []
    for folder in _archives(settings):
        if folder.name in keep or _age_s(folder) < grace_s:
            continue
        if code.remove(Code(folder.name, folder)):
            gone.append(folder.name)
    for unfinished in settings.archives.glob(".*"):  # of whoever died while he wrote or removed one
        if clock.wall_s() - unfinished.stat().st_mtime >= grace_s:
            shutil.rmtree(unfinished, ignore_errors=True)
    return gone


def tidy(settings: Settings) -> None:
    """`expire`, for whoever has just deployed; leaves everything if it cannot be known what is needed."""
    with suppress(DeltaworksError, OSError):
        expire(settings, named(settings))


def _archives(settings: Settings) -> Iterator[Path]:
    for folder in sorted(settings.archives.glob("*")):
        if folder.is_dir() and not folder.name.startswith("."):
            yield folder


def _age_s(folder: Path) -> float:
    """Since it was asked for; one without a manifest is what a crash has left."""
    with suppress(FileNotFoundError):
        return clock.wall_s() - code.asked_for_s(Code(folder.name, folder))
    return float("inf")


def _noted(paths: PipelinePaths) -> list[int]:
    return [int(file.name) for file in paths.codes.glob("*") if file.name.isdecimal()]
