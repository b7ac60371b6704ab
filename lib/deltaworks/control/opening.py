"""How a driver begins where an earlier one has left a batch open, that was perhaps begun by other code.

What is durable of a batch must never meet the results of other code: half of the batch would be the one, half the
other. So other code begins the batch anew if nothing of it is durable (its intent is replaced), and else leaves it to
the code that began it, which is in an archive (`code`). Should that code fail on a record, `set_aside` is the way out,
and never to give up the batch.

Who looks what is durable, and replaces the intent, is the driver; this says what to do, and runs the older code.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from deltaworks import exits
from deltaworks.control import code, outcome
from deltaworks.control.code import Code
from deltaworks.control.intents import Intent
from deltaworks.control.outcome import Outcome
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import (
    DeltaworksError,
    IncompatibleCheckpointError,
    LeaseError,
    QueryError,
    StackError,
    StreamsError,
)
from deltaworks.faults import reach
from deltaworks.settings import Settings
from deltaworks.topology.records import Coordinates

_POLL_S = 0.05
_TETHER = (sys.executable, "-m", "deltaworks.stack.tether", "--signal", "SIGKILL")
"""The child dies with us, and at once: a successor must find the lease free, and ends the JVM that is left."""
_RECORD = re.compile(r"^\s*at (?P<topic>\S+)-(?P<partition>\d+) offset (?P<offset>\d+) \(timestamp ", re.M)
"""As `errors.RecordPosition` says it; of an error that has crossed Spark only the text is left."""


@dataclass(frozen=True)
class GoOn:
    """Run the open batch again, as its intent says; or there is none."""


@dataclass(frozen=True)
class BeginAnew:
    """Nothing of the open batch is durable: replace its intent, by compare and swap."""

    intent: Intent


@dataclass(frozen=True)
class FinishFirst:
    """Something of the open batch is durable: the code that began it has to finish it."""

    intent: Intent


Opening = GoOn | BeginAnew | FinishFirst


def opening(intent: Intent | None, code: str, durable: Collection[str]) -> Opening:
    """What a driver does first.

    Args:
        intent: of the batch that is open; None: none is.
        code: digest of the code of this driver.
        durable: the parts of that batch that are committed: tasks with a marker, tables with a version.
    """
    if intent is None or intent.code == code:
        return GoOn()
    return FinishFirst(intent) if durable else BeginAnew(intent)


def driver_command(name: str, generation: int) -> list[str]:
    """Of the driver that only finishes what is open."""
    run = [sys.executable, "-m", "deltaworks.cli", "run", name]
    return [*run, "--generation", str(generation), "--finish-batch"]


def finish_with(
    settings: Settings,
    name: str,
    generation: int,
    intent: Intent,
    *,
    command: Callable[[str, int], Sequence[str]] = driver_command,
) -> bool:
    """Lets the code that began a batch finish it: a driver from its archive, which ends then.

    The caller neither holds the lease nor has a JVM. The child has our output and our variables (a job may read them),
    and takes lease and fence under our generation. Told to stop, we hand it on: the child ends, or finishes the batch
    before it does.

    Args:
        settings: where the pipeline runs.
        name: of the pipeline.
        generation: ours.
        intent: of the batch that is open.
        command: of the child.

    Returns:
        False: we were told to stop meanwhile; the batch may be open still.

    Raises:
        IncompatibleCheckpointError: the archive is gone, or the older code does not fit any more.
        StreamsError: the older code failed on a record; says which, and what to do.
        LeaseError: another driver runs.
        StackError: Kafka or Spark is not available.
        QueryError: the child ended in any other way.
    """
    paths, runs = PipelinePaths.of(settings, name), _archive_of(settings, name, intent)
    word = paths.finished(generation)
    word.unlink(missing_ok=True)
    print(f"batch {intent.batch} was begun by the code {intent.code}, which finishes it first", flush=True)
    with _stops_handed_on() as told:
        child = subprocess.Popen(
            [*_TETHER, str(os.getpid()), *command(name, generation)],
            env={**os.environ, **settings.with_code(runs.path).driver_environment()},
        )
        reach("opening.finishing")
        asked = False
        while child.poll() is None:
            if told and not asked:
                asked = True
                child.send_signal(signal.SIGTERM)
            time.sleep(_POLL_S)
    said = outcome.read(word)
    word.unlink(missing_ok=True)
    if told and child.returncode in (exits.OK, -signal.SIGTERM):
        return False
    if child.returncode != exits.OK:
        raise _failure(name, intent, child.returncode, said)
    return True


def records_named(reason: str) -> list[Coordinates]:
    """The records that an error is about, as `deltaworks set-aside` takes them."""
    found = (Coordinates(m["topic"], int(m["partition"]), int(m["offset"])) for m in _RECORD.finditer(reason))
    return list(dict.fromkeys(found))


def _archive_of(settings: Settings, name: str, intent: Intent) -> Code:
    try:
        return code.find(settings, intent.code)
    except IncompatibleCheckpointError as error:
        raise IncompatibleCheckpointError(
            f"Batch {intent.batch} of pipeline {name!r} is durable in part, and only the code that began it may finish "
            f"it. {error.message}",
            hint="bring that folder back from a copy of the home, or the same files and versions into the project; "
            "then deploy again",
        ) from error


@contextmanager
def _stops_handed_on() -> Iterator[list[int]]:
    """The signals that told us to stop; they end nothing here."""
    told: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield told
        return

    def note(number: int, frame: FrameType | None) -> None:
        told.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _failure(name: str, intent: Intent, exit_code: int, said: Outcome | None) -> DeltaworksError:
    """The end of the older code, as our own."""
    reason = said.reason if said is not None and said.reason else f"it ended with {exit_code}, without a word"
    message = f"The code {intent.code}, which began batch {intent.batch}, cannot finish it: {reason}"
    match exit_code:
        case exits.DATA:
            records = " ".join(record.name for record in records_named(reason)) or "RECORD"
            return StreamsError(
                message,
                hint=f"`deltaworks set-aside {name} {records}` makes dead letters of what fails, whatever the pipeline "
                "says; then deploy the repaired code again. A part of the batch is durable, so that code cannot begin "
                "it anew",
            )
        case exits.LEASE:
            return LeaseError(message)
        case exits.UNAVAILABLE:
            return StackError(message)
        case exits.CONFIG:
            return IncompatibleCheckpointError(message)
        case _:
            return QueryError(message)
