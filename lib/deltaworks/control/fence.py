"""The fence: a file with the highest generation that was allowed to run a pipeline.

A generation is one deployment of a pipeline; the next one gets the next number. Once a higher number stands in the
file, whatever belongs to a lower one must not write any more, however late it wakes up: it finds out when it looks
here (before each batch, transaction and heartbeat), and at the latest when it commits to a Delta table, whose log the
newer generation has marked (`lakehouse.committer`).

The number is replaced as a whole and is on the disk before the generation runs, so no loss of power takes it back; the
lock is on a file beside it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deltaworks import clock
from deltaworks.errors import FencedError, IncompatibleCheckpointError, LeaseError
from deltaworks.files import lock, make_folder, replace_file

_POLL_S = 0.005
_NUMBER = re.compile(rb"[0-9]{1,18}\n?")


def read(path: Path) -> int:
    """The highest generation so far; 0 if none has run yet.

    Raises:
        IncompatibleCheckpointError: the file is damaged. To take it for 0 would let an old generation write again.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return 0
    if _NUMBER.fullmatch(data) is None:
        raise IncompatibleCheckpointError(
            f"{path} holds {data[:40]!r} in the place of the number of the generation that ran last.",
            hint=f"find the highest generation (`deltaworks status`, {path.parent / 'outcomes'}, the logs), end its "
            f"driver if it runs, and write the number: echo N > {path}",
        )
    return int(data)


def advance(path: Path, generation: int, pipeline: str, *, patience_s: float = 10.0) -> None:
    """Lets `generation` run, and none before it from now on.

    Raises:
        FencedError: a higher one was let in already.
        IncompatibleCheckpointError: the file is damaged.
        LeaseError: an older one is stuck in the middle of writing.
    """
    with _locked(path, patience_s):
        check(path, generation, pipeline)
        replace_file(path, f"{generation}\n".encode(), durable=True)


def check(path: Path, generation: int, pipeline: str) -> None:
    """Raises `FencedError` if a newer generation was let in."""
    highest = read(path)
    if highest > generation:
        raise fenced(pipeline, generation, highest)


@contextmanager
def held(path: Path, generation: int, pipeline: str) -> Iterator[None]:
    """As `check`, and no newer generation is let in until the block ends. For short blocks."""
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
        end = clock.ticks_s() + patience_s
        while not lock(fd, shared=shared):
            if clock.ticks_s() > end:
                raise LeaseError(
                    f"{path} is held by a process that does not let go of it in {patience_s:g} s.",
                    hint=f"a stopped driver of an older generation? Find it with `fuser {locked}`, and end it",
                )
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(fd)
