"""Retention of code archives: an archive is kept while a process runs from it or may need it for a restart or a batch.

The folder of a pipeline has notes on the archives of its last generations. So this needs no registry, and manual runs
count, too.
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
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import DeltaworksError
from deltaworks.files import files_in, replace_file
from deltaworks.settings import Settings

GENERATIONS = 5
"""Number of noted generations per pipeline, whose code is kept for restarts and for going back."""
GRACE_S = 3_600.0
"""An archive that was requested this recently may be about to be used."""


def note(paths: PipelinePaths, generation: int, digest: str) -> None:
    """Notes the archive of a generation; removes the oldest notes."""
    replace_file(paths.codes / str(generation), digest.encode(), durable=True)
    for old in sorted(_noted(paths), reverse=True)[GENERATIONS:]:
        (paths.codes / str(old)).unlink(missing_ok=True)


def code_of(paths: PipelinePaths, generation: int) -> str | None:
    """The digest of a generation's code; None if it is too old or did not run from an archive."""
    with suppress(FileNotFoundError):
        return (paths.codes / str(generation)).read_text() or None
    return None


def named(settings: Settings) -> set[str]:
    """The archives that the last generations of all pipelines, and the last batches of all checkpoints, name."""
    found: set[str] = set()
    for folder in _inside(settings.lasting_pipelines):
        paths = PipelinePaths.of(settings, folder.name)
        found |= {digest for generation in _noted(paths) if (digest := code_of(paths, generation))}
        for checkpoint in (paths.first, *paths.made_checkpoints()):
            last = Intents(files_in(checkpoint.intents)).last()
            if last is not None:
                found.add(last.code)
    return found


def expire(settings: Settings, keep: Collection[str], *, grace_s: float = GRACE_S) -> list[str]:
    """Removes all other archives, except those that a process runs from or that were just requested.

    Returns:
        The digests of the removed archives.
    """
    gone = []
    for folder in _archives(settings):
        if folder.name in keep or _age_s(folder) < grace_s:
            continue
        if code.remove(Code(folder.name, folder)):
            gone.append(folder.name)
    _expire_stored(settings, keep, grace_s)
    for unfinished in settings.archives.glob(".*"):  # left by processes that died while writing or removing one
        if clock.wall_s() - unfinished.stat().st_mtime >= grace_s:
            shutil.rmtree(unfinished, ignore_errors=True)
    return gone


def _expire_stored(settings: Settings, keep: Collection[str], grace_s: float) -> None:
    """Likewise, those in an object store, which other machines share."""
    if (example := code.stored(settings, "0")) is None:
        return
    for kept in _inside(example.parent):
        with suppress(FileNotFoundError):  # another machine has removed it
            if kept.stem not in keep and clock.wall_s() - kept.stat().st_mtime >= grace_s:
                kept.unlink(missing_ok=True)


def tidy(settings: Settings) -> None:
    """Calls `expire` after a deployment; removes nothing if it is unknown what is needed."""
    with suppress(DeltaworksError, OSError):
        expire(settings, named(settings))


def _archives(settings: Settings) -> Iterator[Path]:
    for folder in sorted(settings.archives.glob("*")):
        if folder.is_dir() and not folder.name.startswith("."):
            yield folder


def _inside(folder: Path) -> list[Path]:
    with suppress(FileNotFoundError, NotADirectoryError):
        return [each for each in folder.iterdir() if not each.name.startswith(".")]
    return []


def _age_s(folder: Path) -> float:
    """Seconds since an archive was requested; one without a manifest was left by a crash."""
    with suppress(FileNotFoundError):
        return clock.wall_s() - code.asked_for_s(Code(folder.name, folder))
    return float("inf")


def _noted(paths: PipelinePaths) -> list[int]:
    return [int(file.name) for file in paths.codes.glob("*") if file.name.isdecimal()]
