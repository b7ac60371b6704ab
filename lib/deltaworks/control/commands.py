"""Commands to whoever may write a pipeline's tables: its driver, between two batches, or, if none runs, the caller.

A command is a file in the pipeline's folder, and so is its answer: both outlive the process that wrote them, and need
nothing but the folder. Who asks writes the command and waits; who holds the lease carries it out. So there is no moment
at which a command is carried out twice at once, or by nobody.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from deltaworks import clock
from deltaworks.control import damaged
from deltaworks.errors import LeaseError, TransientError
from deltaworks.files import replace_file
from deltaworks.names import FILE

_POLL_S = 0.05
_COMMAND = ".command.json"


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wants done."""

    id: str
    """The same id again is the same command."""
    kind: str
    arguments: dict[str, Any]
    requested_by: str
    at_ms: int


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it."""

    result: dict[str, Any] | None = None
    error: str | None = None
    """Why it was not done."""
    hint: str | None = None
    seconds: float
    by: str
    """Who carried it out."""


Executor = Callable[[Command], dict[str, Any]]
"""Carries a command out and returns its result; raises `DeltaworksError` if it cannot be done."""


def put(folder: Path, command: Command) -> None:
    """Asks for it; an answer to an earlier command of that id is forgotten."""
    _answer_path(folder, command.id).unlink(missing_ok=True)
    replace_file(folder / f"{command.id}{_COMMAND}", msgspec.json.encode(command))


def pending(folder: Path) -> Iterator[Command]:
    """Commands without an answer, oldest first. One that cannot be read is set aside and answered with an error."""
    if not folder.is_dir():
        return
    found = [command for path in folder.glob(f"*{_COMMAND}") if (command := _read(folder, path)) is not None]
    yield from sorted(found, key=lambda command: (command.at_ms, command.id))


def _read(folder: Path, path: Path) -> Command | None:
    """A command; None if it was withdrawn meanwhile, or cannot be read: then it is set aside and answered."""
    try:
        command = msgspec.json.decode(path.read_bytes(), type=Command)
        if command.id != path.name.removesuffix(_COMMAND):
            raise msgspec.ValidationError(f"its id is {command.id!r}, which is not the name of the file")
        return command
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        damaged.set_aside(path, error)
        said = Answer(
            error=f"the file of the command cannot be read: {error}",
            hint="was the disk full, or the power lost? Nothing was done; ask again",
            seconds=0.0,
            by="whoever found it",
        )
        replace_file(_answer_path(folder, path.name.removesuffix(_COMMAND)), msgspec.json.encode(said))
        return None


def answer(folder: Path, command: Command, said: Answer) -> None:
    """Tells who waits; the command is done."""
    replace_file(_answer_path(folder, command.id), msgspec.json.encode(said))
    (folder / f"{command.id}{_COMMAND}").unlink(missing_ok=True)


def wait(folder: Path, command: Command, *, act: Callable[[], None], timeout_s: float) -> Answer:
    """Waits for the answer and takes it away.

    Args:
        folder: where commands are.
        command: was `put` there.
        act: carries out what is pending if the lease is free; raises `LeaseError` if it is not. Called now and then.
        timeout_s: for the answer of a driver that is busy.

    Raises:
        TransientError: there was none in time, and the command is withdrawn; or it cannot be read.
    """
    path, end = _answer_path(folder, command.id), clock.ticks_s() + timeout_s
    while True:
        if path.exists():
            return _take_answer(path, command)
        try:
            act()
            continue
        except LeaseError:
            pass
        if clock.ticks_s() > end:
            (folder / f"{command.id}{_COMMAND}").unlink(missing_ok=True)
            raise TransientError(
                f"The driver did not carry out the command {command.id!r} in {timeout_s:g} s.",
                hint="its heartbeat and log say what it does (deltaworks status); then try again",
            )
        time.sleep(_POLL_S)


def _take_answer(path: Path, command: Command) -> Answer:
    try:
        said = msgspec.json.decode(path.read_bytes(), type=Answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        damaged.set_aside(path, error)
        raise TransientError(
            f"The answer to the command {command.id!r} cannot be read, so nobody knows whether it was done: {error}",
            hint="was the disk full, or the power lost? Ask again: what is done already is found done",
        ) from error
    path.unlink()
    return said


def _answer_path(folder: Path, command_id: str) -> Path:
    return folder / f"{FILE.checked(command_id, folder)}.answer.json"
