"""How a driver starts if an earlier one left a batch open, perhaps with other code.

One batch must never mix the results of two versions of the code. If nothing of the batch is durable, the new code
starts it again (its intent is replaced). Otherwise, the code that started the batch finishes it, from its archive
(`code`). If that code fails on a record, `set_aside` is the way out; the batch is never given up.

The driver finds out what is durable and replaces the intent. This module decides what to do and runs the older code.
"""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from deltaworks import exits
from deltaworks.control import children, code, outcome
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

_RECORD = re.compile(r"^\s*at (?P<topic>\S+)-(?P<partition>\d+) offset (?P<offset>\d+) \(timestamp ", re.M)
"""The text of an `errors.RecordPosition`: of an error that has passed through Spark, only the text is left."""


@dataclass(frozen=True)
class GoOn:
    """Run the open batch again according to its intent, if there is one."""


@dataclass(frozen=True)
class ReplaceIntent:
    """Replace the intent of the open batch by compare and swap, since nothing of the batch is durable."""

    intent: Intent


@dataclass(frozen=True)
class FinishFirst:
    """Let the code that started the open batch finish it, since part of it is durable."""

    intent: Intent


Opening = GoOn | ReplaceIntent | FinishFirst


def opening(intent: Intent | None, code: str, durable: Collection[str]) -> Opening:
    """Decides what a driver does first.

    Args:
        intent: intent of the open batch; None if none is open.
        code: digest of the code of this driver.
        durable: the committed parts of that batch: tasks with a marker, tables with a version.
    """
    if intent is None or intent.code == code:
        return GoOn()
    return FinishFirst(intent) if durable else ReplaceIntent(intent)


def driver_command(name: str, generation: int) -> list[str]:
    """The command of a driver that only finishes the open batch."""
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
    """Lets the code that started a batch finish it: runs a driver from its archive, which then ends.

    The caller neither holds the lease nor has a JVM: the child takes lease and fence under our generation. A request to
    stop is passed on: the child ends, perhaps after finishing the batch.

    Args:
        settings: settings of the pipeline.
        name: name of the pipeline.
        generation: our generation.
        intent: intent of the open batch.
        command: command of the child.

    Returns:
        False if we were told to stop meanwhile; the batch may still be open.

    Raises:
        IncompatibleCheckpointError: the archive is missing, or the older code no longer fits.
        StreamsError: the older code failed on a record; says which, and what to do.
        LeaseError: another driver runs.
        StackError: Kafka or Spark is not available.
        QueryError: the child ended in any other way.
    """
    paths, runs = PipelinePaths.of(settings, name), _archive_of(settings, name, intent)
    word = paths.finished(generation)
    word.unlink(missing_ok=True)
    print(f"the code {intent.code} started batch {intent.batch} and finishes it first", flush=True)
    with children.stops_noted() as told:
        ended = children.run(
            command(name, generation),
            settings.with_code(runs.path).driver_environment(),
            is_told=lambda: bool(told),
            begun=lambda _: reach("opening.finishing"),
        )
    said = outcome.read(word)
    word.unlink(missing_ok=True)
    if told and ended in (exits.OK, -signal.SIGTERM):
        return False
    if ended != exits.OK:
        raise _failure(name, intent, ended, said)
    return True


def records_named(reason: str) -> list[Coordinates]:
    """The records that an error names, in the form that `deltaworks set-aside` accepts."""
    found = (Coordinates(m["topic"], int(m["partition"]), int(m["offset"])) for m in _RECORD.finditer(reason))
    return list(dict.fromkeys(found))


def _archive_of(settings: Settings, name: str, intent: Intent) -> Code:
    try:
        return code.find(settings, intent.code)
    except IncompatibleCheckpointError as error:
        raise IncompatibleCheckpointError(
            f"Batch {intent.batch} of pipeline {name!r} is partly durable, and only the code that started it may "
            f"finish it. {error.message}",
            hint="restore that folder from a copy of the home, or the same files and versions in the project; then "
            "deploy again",
        ) from error


def _failure(name: str, intent: Intent, exit_code: int, said: Outcome | None) -> DeltaworksError:
    """Turns the end of the older code into our own error."""
    reason = said.reason if said is not None and said.reason else f"it ended with {exit_code}, without a reason"
    message = f"The code {intent.code}, which started batch {intent.batch}, cannot finish it: {reason}"
    match exit_code:
        case exits.DATA:
            records = " ".join(record.name for record in records_named(reason)) or "RECORD"
            return StreamsError(
                message,
                hint=f"`deltaworks set-aside {name} {records}` turns failing records into dead letters, whatever the "
                "pipeline's error policy; then deploy the fixed code again. Part of the batch is durable, so that code "
                "cannot start it again",
            )
        case exits.LEASE:
            return LeaseError(message)
        case exits.UNAVAILABLE:
            return StackError(message)
        case exits.CONFIG:
            return IncompatibleCheckpointError(message)
        case _:
            return QueryError(message)
