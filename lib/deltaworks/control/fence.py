"""The fence: a file with the highest generation that was admitted to run a pipeline.

A generation is one deployment of a pipeline; the next one gets the next number. Once the file has a higher number, the
processes of a lower generation must no longer write, however late they wake up. They find out when they check the file
(before each batch, transaction and heartbeat), or at the latest when they commit to a Delta table, whose log the newer
generation has marked (`lakehouse.committer`).

The number is replaced as a whole and is on the disk before the generation runs, so no loss of power takes it back. The
lock is on a file next to it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deltaworks.errors import FencedError, IncompatibleCheckpointError, LeaseError
from deltaworks.files import lock, make_folder, replace_file

_NUMBER = re.compile(rb"[0-9]{1,18}\n?")


def read(path: Path) -> int:
    """The highest generation so far; 0 if none has run yet.

    Raises:
        IncompatibleCheckpointError: the file is damaged. Treating it as 0 would let an old generation write again.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return 0
    if _NUMBER.fullmatch(data) is None:
        raise IncompatibleCheckpointError(
            f"{path} holds {data[:40]!r} instead of the number of the last generation.",
            hint=f"find the highest generation (`deltaworks status`, {path.parent / 'outcomes'}, the logs), end its "
            f"driver if it runs, and write the number: echo N > {path}",
        )
    return int(data)


def advance(path: Path, generation: int, pipeline: str, *, patience_s: float = 10.0) -> None:
    """Admits `generation`, and fences all earlier ones.

    Raises:
        FencedError: a higher generation is already admitted.
        IncompatibleCheckpointError: the file is damaged.
        LeaseError: an older generation is stuck in the middle of a write.
    """
    with _locked(path, patience_s):
        check(path, generation, pipeline)
        replace_file(path, f"{generation}\n".encode(), durable=True)


def check(path: Path, generation: int, pipeline: str) -> None:
    """Raises `FencedError` if a newer generation is admitted."""
    highest = read(path)
    if highest > generation:
        raise fenced(pipeline, generation, highest)


@contextmanager
def held(path: Path, generation: int, pipeline: str) -> Iterator[None]:
    """Like `check`, and admits no newer generation until the block ends; for short blocks."""
    with _locked(path, 10.0, shared=True):
        check(path, generation, pipeline)
        yield


def fenced(pipeline: str, generation: int, highest: int) -> FencedError:
    """The error of a generation that has been replaced."""
    return FencedError(
        f"generation {generation} of pipeline {pipeline!r} was replaced by generation {highest}; it ends here",
        hint="nothing to do: the newer generation goes on where this one stopped",
    )


@contextmanager
def _locked(path: Path, patience_s: float, *, shared: bool = False) -> Iterator[None]:
    make_folder(path.parent)
    locked = path.with_name(f"{path.name}.lock")
    fd = os.open(locked, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not lock(fd, shared=shared, patience_s=patience_s):
            raise LeaseError(
                f"A process holds {path} and has not released it within {patience_s:g} s.",
                hint=f"is it a suspended driver of an older generation? Find it with `fuser {locked}` and end it",
            )
        yield
    finally:
        os.close(fd)
