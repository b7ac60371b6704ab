"""The fence: a file with the highest generation that was admitted to run a pipeline.

A generation is one deployment of a pipeline; the next one gets the next number. Once the file has a higher number, the
processes of a lower generation must no longer write, however late they wake up. They find out when they check the file
(before each batch, transaction and heartbeat), or at the latest when they commit to a Delta table, whose log the newer
generation has marked (`lakehouse.committer`).

The number is replaced as a whole and is on the disk before the generation runs, so no loss of power takes it back. The
lock is on a file next to it.

In an object store, the file is replaced by compare and swap, and also says which machine was admitted: drivers on two
machines that ask for the same number at the same time are not both admitted. Nothing can be locked there. So what is
written within `held` must itself be written by compare and swap, of a version that was read before.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deltaworks import processes
from deltaworks.errors import FencedError, IncompatibleCheckpointError, LeaseError
from deltaworks.files import LocalFiles, files_in, local_side, lock, make_folder, replace_file, swap
from deltaworks.object_path import ObjectPath

_MACHINE = "machine"
_NUMBER = re.compile(rb"([0-9]{1,18})(?:\n([0-9a-f]{16}))?\n?")


def read(path: Path) -> int:
    """The highest generation so far; 0 if none has run yet.

    Raises:
        IncompatibleCheckpointError: the file is damaged. Treating it as 0 would let an old generation write again.
    """
    try:
        return _decoded(path, path.read_bytes())[0]
    except FileNotFoundError:
        return 0


def _decoded(path: Path, data: bytes) -> tuple[int, str]:
    """The number, and which machine was admitted, if it says so."""
    if (found := _NUMBER.fullmatch(data)) is None:
        raise IncompatibleCheckpointError(
            f"{path} holds {data[:40]!r} instead of the number of the last generation.",
            hint=f"find the highest generation (`deltaworks status`, {path.parent / 'outcomes'}, the logs), end its "
            f"driver if it runs, and let the number be all that is in {path}",
        )
    return int(found[1]), (found[2] or b"").decode()


def advance(path: Path, generation: int, pipeline: str, *, patience_s: float = 10.0) -> None:
    """Admits `generation`, and fences all earlier ones.

    Raises:
        FencedError: a higher generation is already admitted, or this one is on another machine.
        IncompatibleCheckpointError: the file is damaged.
        LeaseError: an older generation is stuck in the middle of a write.
    """
    if isinstance(path, ObjectPath):
        _advance_in_store(path, generation, pipeline)
        return
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
    """Like `check`, and admits no newer generation until the block ends; for short blocks.

    In an object store a newer generation may be admitted meanwhile.
    """
    if isinstance(path, ObjectPath):
        check(path, generation, pipeline)
        yield
        return
    with _locked(path, 10.0, shared=True):
        check(path, generation, pipeline)
        yield


def fenced(pipeline: str, generation: int, highest: int) -> FencedError:
    """The error of a generation that has been replaced."""
    return FencedError(
        f"generation {generation} of pipeline {pipeline!r} was replaced by generation {highest}; it ends here",
        hint="nothing to do: the newer generation goes on where this one stopped",
    )


def _advance_in_store(path: ObjectPath, generation: int, pipeline: str) -> None:
    files, me = files_in(path.parent), _machine(path)
    wanted = f"{generation}\n{me}\n".encode()
    while True:
        stored = files.get(path.name)
        highest, admitted = (0, "") if stored is None else _decoded(path, stored.data)
        if highest > generation:
            raise fenced(pipeline, generation, highest)
        if highest == generation:
            if admitted == me:
                return  # processes of one machine exclude each other by the lease
            raise FencedError(
                f"generation {generation} of pipeline {pipeline!r} was admitted on another machine; it ends here",
                hint="do two machines run it, each with a registry of its own? All need the same one",
            )
        if swap(files, path.name, wanted, stored):
            return


def _machine(path: ObjectPath) -> str:
    """Identifies this home on this machine until it is started again: a copy of the home elsewhere is another one."""
    files = LocalFiles(local_side(path.parent))
    files.put_if_absent(_MACHINE, secrets.token_bytes(16))
    stored = files.get(_MACHINE)
    assert stored is not None
    known = b"|".join((stored.data, processes.boot_id().encode(), socket.gethostname().encode()))
    return hashlib.sha256(known).hexdigest()[:16]


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
