"""Commands to the writer of a pipeline's tables: its driver, between two batches, or the caller if none runs.

A command is a file in the pipeline's folder, as is its answer. Both outlive the process that wrote them and need only
the folder. The caller writes the command and waits; the holder of the lease executes it. So a command is never executed
twice at once, and always by somebody.
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
    """A command to the holder of the lease."""

    id: str
    """Id of the command; the same id means the same command."""
    kind: str
    arguments: dict[str, Any]
    requested_by: str
    at_ms: int


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a command."""

    result: dict[str, Any] | None = None
    error: str | None = None
    """Why it was not executed."""
    hint: str | None = None
    seconds: float
    by: str
    """Who executed it."""


Executor = Callable[[Command], dict[str, Any]]
"""Executes a command and returns its result; raises `DeltaworksError` if it cannot."""


def put(folder: Path, command: Command) -> None:
    """Requests a command; removes an earlier answer of the same id."""
    _answer_path(folder, command.id).unlink(missing_ok=True)
    replace_file(folder / f"{command.id}{_COMMAND}", msgspec.json.encode(command))


def pending(folder: Path) -> Iterator[Command]:
    """Commands without an answer, oldest first. An unreadable one is set aside and answered with an error."""
    if not folder.is_dir():
        return
    found = [command for path in folder.glob(f"*{_COMMAND}") if (command := _read(folder, path)) is not None]
    yield from sorted(found, key=lambda command: (command.at_ms, command.id))


def _read(folder: Path, path: Path) -> Command | None:
    """Reads a command; None if it was withdrawn or is unreadable. An unreadable one is set aside and answered."""
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
            hint="was the disk full, or was there a power failure? Nothing was done; repeat the command",
            seconds=0.0,
            by="whoever found it",
        )
        replace_file(_answer_path(folder, path.name.removesuffix(_COMMAND)), msgspec.json.encode(said))
        return None


def answer(folder: Path, command: Command, said: Answer) -> None:
    """Answers the waiting caller; the command is done."""
    replace_file(_answer_path(folder, command.id), msgspec.json.encode(said))
    (folder / f"{command.id}{_COMMAND}").unlink(missing_ok=True)


def wait(folder: Path, command: Command, *, act: Callable[[], None], timeout_s: float) -> Answer:
    """Waits for the answer and removes it.

    Args:
        folder: folder of the commands.
        command: a command that was `put` there.
        act: executes pending commands if the lease is free; otherwise raises `LeaseError`. Called repeatedly.
        timeout_s: how long to wait for a busy driver.

    Raises:
        TransientError: there was no answer in time, and the command is withdrawn; or the answer cannot be read.
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
                f"The driver did not execute the command {command.id!r} within {timeout_s:g} s.",
                hint="see what it is doing (`deltaworks status` and its log), then try again",
            )
        time.sleep(_POLL_S)


def _take_answer(path: Path, command: Command) -> Answer:
    try:
        said = msgspec.json.decode(path.read_bytes(), type=Answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        damaged.set_aside(path, error)
        raise TransientError(
            f"The answer to the command {command.id!r} cannot be read, so it is unknown whether it was done: {error}",
            hint="was the disk full, or was there a power failure? Repeat the command; a finished one is recognised",
        ) from error
    path.unlink()
    return said


def _answer_path(folder: Path, command_id: str) -> Path:
    return folder / f"{FILE.checked(command_id, folder)}.answer.json"
