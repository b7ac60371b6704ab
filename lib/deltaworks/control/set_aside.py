"""Records that somebody set aside: the way out if a record always fails.

Whatever code runs, each of them becomes a dead letter before it is decoded (`kernel.order`). The list is an input of
the pipeline like the records themselves: every attempt at a batch and every replay sets the same records aside. So it
changes only while no driver runs, and only for records that no batch has processed. It is kept for ever, except for
recreated topics (`forget`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import msgspec

from deltaworks import clock, formats
from deltaworks.control import batches, fence
from deltaworks.control.intents import Intents
from deltaworks.control.lease import Lease
from deltaworks.control.paths import PipelinePaths
from deltaworks.dsl.pipeline import Pipeline
from deltaworks.errors import ConfigurationError, ConflictError
from deltaworks.files import Stored, files_in, swap
from deltaworks.kernel.exchanges import batch_of
from deltaworks.topology.plan import Plan
from deltaworks.topology.records import Coordinates

FORMAT = 1
_FILE = "records.json"
_Change = Callable[[tuple["Entry", ...]], tuple["Entry", ...]]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A record that was set aside, and by whom."""

    record: Coordinates
    by: str
    at_ms: int
    reason: str = ""


class _List(msgspec.Struct, frozen=True, kw_only=True):
    format: int = FORMAT
    entries: tuple[Entry, ...] = ()


def entries(paths: PipelinePaths) -> tuple[Entry, ...]:
    """All records of a pipeline that were set aside, in that order.

    Raises:
        IncompatibleCheckpointError: another version of deltaworks wrote the list, or it cannot be read.
    """
    return _read(paths)[0].entries


def applied(paths: PipelinePaths, pipeline: Pipeline) -> Pipeline:
    """The pipeline as every host has to run it: with the list of records that were set aside.

    Raises:
        IncompatibleCheckpointError: see `entries`.
    """
    records = frozenset(entry.record for entry in entries(paths))
    return replace(pipeline, set_aside=pipeline.set_aside | records)


def add(
    paths: PipelinePaths, pipeline: Pipeline, records: Sequence[Coordinates], *, by: str, reason: str
) -> list[Coordinates]:
    """Sets records aside, durably; returns those that are new.

    Raises:
        ConfigurationError: the pipeline has no such source topic or exchange.
        LeaseError: a driver runs.
        ConflictError: a batch has processed one of them.
    """
    plan = pipeline.plan()
    for record in records:
        _require_read(plan, record)
    at_ms, new = clock.wall_ms(), dict.fromkeys(records)

    def change(before: tuple[Entry, ...]) -> tuple[Entry, ...]:
        for entry in before:
            new.pop(entry.record, None)
        _require_unprocessed(paths, plan, list(new), "it can no longer be set aside")
        return before + tuple(Entry(record=record, by=by, at_ms=at_ms, reason=reason) for record in new)

    _change(paths, pipeline.name, change)
    return list(new)


def remove(paths: PipelinePaths, pipeline: Pipeline, records: Sequence[Coordinates]) -> None:
    """Lets records be processed after all.

    Raises:
        ConfigurationError: one of them was not set aside.
        LeaseError: a driver runs.
        ConflictError: the batch that sets it aside has started.
    """
    plan = pipeline.plan()

    def change(before: tuple[Entry, ...]) -> tuple[Entry, ...]:
        known = {entry.record for entry in before}
        for record in records:
            if record not in known:
                raise ConfigurationError(f"{record.name} was not set aside.", hint="deltaworks set-aside NAME --list")
        _require_unprocessed(paths, plan, records, "it stays set aside")
        _require_unplanned(paths, plan, records)
        return tuple(entry for entry in before if entry.record not in records)

    _change(paths, pipeline.name, change)


def forget(paths: PipelinePaths, topics: Collection[str]) -> None:
    """Removes records of recreated topics, which have other records at the same offsets; the caller has the lease."""
    if any(entry.record.topic in topics for entry in entries(paths)):
        _write(paths, lambda before: tuple(entry for entry in before if entry.record.topic not in topics))


def _change(paths: PipelinePaths, name: str, change: _Change) -> None:
    with Lease(paths.lease, name, fence.read(paths.fence)):  # what a driver reads at its start stays valid
        _write(paths, change)


def _write(paths: PipelinePaths, change: _Change) -> None:
    files = files_in(paths.records_set_aside)
    while True:
        before, stored = _read(paths)
        after = msgspec.json.encode(_List(entries=change(before.entries)))
        if swap(files, _FILE, after, stored):
            return


def _read(paths: PipelinePaths) -> tuple[_List, Stored | None]:
    """The list, and the file that it is from; None if there is no file yet."""
    stored = files_in(paths.records_set_aside).get(_FILE)
    if stored is None:
        return _List(), None
    path = paths.records_set_aside / _FILE
    found = formats.decode(
        stored.data,
        _List,
        FORMAT,
        f"The list of records that were set aside, {path},",
        damaged="it was synced before anybody relied on it, so the disk is damaged; restore a copy of the file",
    )
    return found, stored


def _require_read(plan: Plan, record: Coordinates) -> None:
    if _is_exchange(plan, record) or plan.uses(record.topic):
        return
    exchanges = [f"{exchange}/TASK" for stage in plan.stages for exchange in stage.exchanges_in]
    known = sorted({*plan.source_topics, *plan.global_topics, *plan.source_patterns, *exchanges})
    raise ConfigurationError(
        f"The pipeline does not read {record.topic!r}, so {record.name} is not one of its records.",
        hint=f"it reads {', '.join(known)}; the error of the stream names the record",
    )


def _require_unprocessed(paths: PipelinePaths, plan: Plan, records: Collection[Coordinates], so: str) -> None:
    for record in records:
        if (batch := _processed_in(paths, plan, record)) is not None:
            raise ConflictError(
                f"{record.name} was processed in batch {batch}: {so}.",
                hint="this does not change history; `deltaworks replay` does, with other code",
            )


def _processed_in(paths: PipelinePaths, plan: Plan, record: Coordinates) -> int | None:
    """The recorded batch that has processed a record; None if none has."""
    if _is_exchange(plan, record):
        last, batch = batches.last(paths.batches), batch_of(record.offset)
        return batch if last is not None and batch <= last.batch else None
    recreated = batches.topics_read(batches.read(paths.batches)).recreated.get(record.topic)
    for each in batches.read(paths.batches):
        if recreated is not None and each.batch < recreated.batch:
            continue  # it read another record
        start, stop = each.offsets.get(record.topic, {}).get(str(record.partition), (0, 0))
        if start <= record.offset < stop:
            return each.batch
    return None


def _require_unplanned(paths: PipelinePaths, plan: Plan, records: Collection[Coordinates]) -> None:
    """Refuses to bring back records of a started batch, since part of it may be durable."""
    last = batches.last(paths.batches)
    intents = Intents(files_in(paths.current.intents))
    for number in intents.batches():
        if last is not None and number <= last.batch:
            continue
        intent = intents.get(number)
        for record in records:
            in_range = intent is not None and any(
                (each.topic, each.partition) == (record.topic, record.partition)
                and each.start <= record.offset < each.stop
                for each in intent.ranges
            )
            if in_range or (_is_exchange(plan, record) and batch_of(record.offset) == number):
                raise ConflictError(
                    f"{record.name} belongs to batch {number}, which has started: it stays set aside.",
                    hint="nothing to do; its dead letter or the log has its content",
                )


def _is_exchange(plan: Plan, record: Coordinates) -> bool:
    """Whether the name is that of a record after an exchange (`kernel.context.unique`)."""
    exchange, _, task = record.topic.rpartition("/")
    return task.isdecimal() and any(exchange in stage.exchanges_in for stage in plan.stages)
