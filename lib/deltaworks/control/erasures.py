"""The record of erasures: who asked for the deletion of a person's data, when, and what became of it.

It never has the key of the person: only a hash of it, with a salt of the pipeline's own. Replays read Kafka again,
which still has the person's records, so they ask here what to leave out.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from deltaworks import clock, formats
from deltaworks.control.paths import PipelinePaths
from deltaworks.files import replace_file
from deltaworks.kafka.ranges import Offsets
from deltaworks.kernel.records import RecordBatch
from deltaworks.topology.persons import Known, Person
from deltaworks.topology.plan import Plan

T = TypeVar("T")

FORMAT = 1
_SALT_BYTES = 32


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """One person's data was deleted, or is being deleted."""

    format: int = FORMAT
    id: str
    pipeline: str
    person: Known
    requested_by: str
    reason: str = ""
    begun_ms: int
    done_ms: int | None = None
    """None: it has not been completed; the command has to be given again."""
    offsets: Offsets | None = None
    """The next offsets of the stream when it was done: what a replay leaves out is before them."""
    taken: dict[str, int] = {}
    """Place, such as `table orders` or `store users` -> rows, entries or lines that were deleted there."""
    left: list[str] = []
    """Where the person's data still is, and what can be done about it."""

    def end(self, topic: str, partition: int) -> int:
        """The first offset of a partition that the stream had not read yet."""
        return (self.offsets or {}).get(topic, {}).get(str(partition), 0)

    @property
    def begun_at(self) -> datetime:
        return datetime.fromtimestamp(self.begun_ms / 1000, UTC)


def salt(paths: PipelinePaths) -> bytes:
    """The salt of a pipeline's hashes, made on first use, durably."""
    file = paths.erasures / "salt"
    if not file.exists():
        replace_file(file, secrets.token_bytes(_SALT_BYTES), mode=0o600, durable=True)
    return file.read_bytes()


def erasures(paths: PipelinePaths) -> list[Erasure]:
    """All erasures of a pipeline, oldest first.

    Raises:
        IncompatibleCheckpointError: another version of deltaworks wrote one, or it cannot be read.
    """
    found = (
        formats.read(file, Erasure, FORMAT, f"The record of an erasure {file}")
        for file in sorted(paths.erasures.glob("*.json"))
    )
    return sorted((each for each in found if each is not None), key=lambda each: (each.begun_ms, each.id))


def save(paths: PipelinePaths, erasure: Erasure) -> None:
    """Replaces the record of an erasure, durably."""
    content = msgspec.json.format(msgspec.json.encode(erasure), indent=1)
    replace_file(paths.erasures / f"{erasure.id}.json", content, mode=0o600, durable=True)


def begin(paths: PipelinePaths, person: Person, pipeline: str, *, by: str, reason: str) -> Erasure:
    """The record of an erasure that begins now; that of one of the same person that was not completed goes on."""
    known = person.hash(salt(paths))
    for each in erasures(paths):
        if each.person == known and each.done_ms is None:
            return each
    begun_ms = clock.wall_ms()
    made = Erasure(
        id=f"{datetime.fromtimestamp(begun_ms / 1000, UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}",
        pipeline=pipeline,
        person=known,
        requested_by=by,
        reason=reason,
        begun_ms=begun_ms,
    )
    save(paths, made)
    return made


def withdraw(paths: PipelinePaths, erasure: Erasure) -> None:
    """Removes the record of an erasure that was refused and has changed nothing."""
    (paths.erasures / f"{erasure.id}.json").unlink(missing_ok=True)


@dataclass(frozen=True)
class Forgotten:
    """Leaves the records of persons out whose data was erased.

    Args:
        plan: has the serdes of the topics.
        salt: of the hashes.
        erasures: that were completed.
    """

    plan: Plan
    salt: bytes
    erasures: tuple[Erasure, ...]

    @classmethod
    def of(cls, paths: PipelinePaths, plan: Plan) -> Forgotten | None:
        """None: nobody's data was erased."""
        done = tuple(each for each in erasures(paths) if each.offsets is not None)
        return cls(plan, salt(paths), done) if done else None

    def left(self, batch: RecordBatch) -> RecordBatch:
        """A batch without their records, as far as the stream had read them when they were erased."""
        ends = ((each, each.end(batch.topic, batch.partition)) for each in self.erasures)
        asked = [(each, end) for each, end in ends if batch.offsets and batch.offsets[0] < end]
        if not asked:
            return batch
        anybody = self._named([each.person for each, _ in asked], batch, range(len(batch.offsets)))
        gone = {
            at
            for each, end in asked
            for at in (self._named([each.person], batch, anybody) if anybody else ())
            if batch.offsets[at] < end
        }
        return _without(batch, gone) if gone else batch

    def _named(self, persons: list[Known], batch: RecordBatch, places: Iterable[int]) -> set[int]:
        """The places of records that name one of the persons."""
        person, serdes = Person.known(self.salt, persons), self.plan.serdes_of(batch.topic)
        return {
            at
            for at in places
            if any(
                person.in_raw(batch.keys[at], key, is_key=True) or person.in_raw(batch.values[at], value)
                for key, value in serdes
            )
        }


def _without(batch: RecordBatch, gone: set[int]) -> RecordBatch:
    def left(column: list[T]) -> list[T]:
        return [each for at, each in enumerate(column) if at not in gone]

    return RecordBatch(
        batch.topic,
        batch.partition,
        left(batch.offsets),
        left(batch.timestamps_ms),
        left(batch.keys),
        left(batch.values),
        None if batch.headers is None else left(batch.headers),
    )
