"""What streams were like in the last hours.

A thread reads the heartbeats every few seconds, whether somebody looks or not, and keeps them in memory. What was
before the server started is known as far as it is recorded: how many records each batch has read (`control.batches`),
and the entries of stores every ten minutes (the registry). Lag and batch times begin with the server.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf, isnan, nan

import msgspec

from deltaworks import clock
from deltaworks.control import batches, heartbeat
from deltaworks.control.batches import BatchRecord
from deltaworks.control.heartbeat import Heartbeat
from deltaworks.control.incident_book import IncidentBook, Sample
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import ControlUnavailableError, DeltaworksError
from deltaworks.settings import Settings

HOURS = 6
EVERY_S = 5.0
_KEPT = int(HOURS * 3_600 / EVERY_S)
_PORTION = 256
_RATE_S = 60.0
"""Rates of topics are those of about the last minute."""
_POINTS = 360
"""So many points a line has at most."""
_LIVE = ("starting", "running", "draining")


@dataclass(frozen=True)
class Beats:
    """What is kept of the heartbeats of a stream, oldest first: a column per figure, since there are thousands.

    Attributes:
        at: Unix seconds.
        lag_seconds: NaN where it was not known, as in the others.
        batch_seconds: of the last batch.
        state_entries: of all stores.
    """

    at: array[float] = field(default_factory=lambda: array("d"))
    lag_seconds: array[float] = field(default_factory=lambda: array("d"))
    batch_seconds: array[float] = field(default_factory=lambda: array("d"))
    state_entries: array[float] = field(default_factory=lambda: array("d"))

    def add(self, beat: Heartbeat) -> bool:
        """Adds one if it is newer than the last; those that are too many go in portions. Returns whether it is."""
        if self.at and self.at[-1] >= beat.at:
            return False
        batch_seconds = None if beat.batch_id is None else beat.batch_seconds
        figures = (beat.at, beat.lag_seconds, batch_seconds, beat.state_entries)
        for column, figure in zip(self._columns(), figures, strict=True):
            column.append(nan if figure is None else figure)
            if len(column) >= _KEPT + _PORTION:
                del column[:-_KEPT]
        return True

    def since(self, from_s: float) -> Beats:
        """A copy of those from a time on."""
        first = bisect_left(self.at, from_s)
        return Beats(*(column[first:] for column in self._columns()))

    def points(self, figures: array[float]) -> list[tuple[float, float | None]]:
        """Time and figure of each."""
        return [(at, None if isnan(figure) else figure) for at, figure in zip(self.at, figures, strict=True)]

    def _columns(self) -> tuple[array[float], ...]:
        return self.at, self.lag_seconds, self.batch_seconds, self.state_entries


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a chart; `values` has one per time, null where nothing is known."""

    at: list[float]
    """Unix seconds."""
    values: list[float | None]


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The last hours of a stream."""

    from_s: float
    to_s: float
    records_per_second: Series
    lag_seconds: Series
    batch_seconds: Series
    state_entries: Series


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """What is recorded of the last hours of a stream, whether a server runs or not."""

    records_per_second: Series
    samples: tuple[Sample, ...]


class Watch:
    """Keeps the heartbeats of all streams of a home.

    Args:
        settings: of the home.
        every_s: how often they are read.
    """

    def __init__(self, settings: Settings, *, every_s: float = EVERY_S) -> None:
        self._settings, self._every_s = settings, every_s
        self._kept: dict[str, Beats] = {}
        self._reads: dict[str, deque[tuple[float, dict[str, int]]]] = {}
        """Stream -> when, and topic -> the sum of its next offsets; only of the last minute."""
        self._lock = threading.Lock()  # guards `_kept`, `_reads` and `_begun`
        self._begun = False
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)

    def start(self) -> None:
        """Begins to read, unless it has begun."""
        with self._lock:
            begun, self._begun = self._begun, True
        if not begun:
            self.look()
            self._thread.start()

    def close(self) -> None:
        """Ends."""
        self._end.set()

    def look(self) -> None:
        """Reads the heartbeats once."""
        for file in sorted(self._settings.pipelines.glob("*/heartbeat.json")):
            with suppress(OSError, DeltaworksError):
                if (beat := heartbeat.read(file)) is not None:
                    self.take(file.parent.name, beat)

    def take(self, name: str, beat: Heartbeat) -> None:
        """Keeps a heartbeat, unless it is known or its driver has ended."""
        if beat.state not in _LIVE:
            return
        read = {topic: sum(offsets.values()) for topic, offsets in beat.next_offsets.items()}
        with self._lock:
            if self._kept.setdefault(name, Beats()).add(beat):
                reads = self._reads.setdefault(name, deque())
                reads.append((beat.at, read))
                while reads[0][0] < beat.at - _RATE_S:
                    reads.popleft()

    def kept(self, name: str) -> Beats:
        """The heartbeats of a stream."""
        with self._lock:
            return self._kept.get(name, Beats()).since(-inf)

    def topic_rates(self, name: str) -> dict[str, float]:
        """Topic -> records per second that the stream has read of it, over the last minute; unknown ones are absent."""
        with self._lock:
            reads = self._reads.get(name) or deque()
            if len(reads) < 2 or clock.wall_s() - reads[-1][0] > _RATE_S:
                return {}
            (first_at, before), (last_at, now) = reads[0], reads[-1]
        return {
            topic: max(0, read - before[topic]) / (last_at - first_at) for topic, read in now.items() if topic in before
        }

    def _run(self) -> None:
        while not self._end.wait(self._every_s):
            self.look()


def recorded(settings: Settings, name: str, *, now_s: float | None = None) -> Recorded:
    """What is recorded of a stream; takes long if there is much of it.

    Args:
        settings: of the home.
        name: of the pipeline.
        now_s: the end; None: now.
    """
    to_s = clock.wall_s() if now_s is None else now_s
    from_s = to_s - HOURS * 3_600
    return Recorded(
        records_per_second=_throughput(_batches(settings, name, from_s), from_s, to_s),
        samples=tuple(_samples(settings, name)),
    )


def history(known: Recorded, beats: Beats, *, now_s: float | None = None) -> History:
    """The last hours of a stream.

    Args:
        known: what is recorded of it.
        beats: of it, as `Watch` has kept them.
        now_s: the end; None: now.
    """
    to_s = clock.wall_s() if now_s is None else now_s
    from_s = to_s - HOURS * 3_600
    recent = beats.since(from_s)
    return History(
        from_s=from_s,
        to_s=to_s,
        records_per_second=known.records_per_second,
        lag_seconds=_thinned(recent.points(recent.lag_seconds)),
        batch_seconds=_thinned(recent.points(recent.batch_seconds)),
        state_entries=_state(known.samples, recent, from_s),
    )


def _batches(settings: Settings, name: str, from_s: float) -> list[BatchRecord]:
    with suppress(OSError, DeltaworksError):
        return batches.since(PipelinePaths.of(settings, name).batches, int(from_s * 1000))
    return []


def _samples(settings: Settings, name: str) -> list[Sample]:
    with suppress(ControlUnavailableError):
        return IncidentBook.of(settings).samples(name)
    return []


def _throughput(records: Iterable[BatchRecord], from_s: float, to_s: float) -> Series:
    """Records per second and minute, from the first batch on; a minute without a batch has none."""
    slot_s = 60.0
    counts: dict[int, int] = {}
    for record in records:
        read = sum(stop - start for parts in record.offsets.values() for start, stop in parts.values())
        slot = int(record.wall_clock_ms / 1000 // slot_s)
        counts[slot] = counts.get(slot, 0) + read
    if not counts:
        return Series(at=[], values=[])
    first, last = max(min(counts), int(from_s // slot_s)), int(to_s // slot_s)
    slots = range(first, last)  # not the minute that goes on
    return Series(at=[slot * slot_s for slot in slots], values=[counts.get(slot, 0) / slot_s for slot in slots])


def _state(samples: Sequence[Sample], beats: Beats, from_s: float) -> Series:
    begin_s = beats.at[0] if beats.at else inf
    earlier = [(each.at.timestamp(), float(each.state_entries)) for each in samples]
    kept = [(at, value) for at, value in earlier if from_s <= at < begin_s]
    return _thinned([*kept, *beats.points(beats.state_entries)])


def _thinned(points: Sequence[tuple[float, float | None]]) -> Series:
    """At most `_POINTS` points: of each slot the highest one, so that no peak is lost."""
    size = max(1, -(-len(points) // _POINTS))
    slots = [points[start : start + size] for start in range(0, len(points), size)]
    best = [max(slot, key=lambda point: -1.0 if point[1] is None else point[1]) for slot in slots]
    return Series(at=[at for at, _ in best], values=[value for _, value in best])
