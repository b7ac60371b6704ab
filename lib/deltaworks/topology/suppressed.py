"""When a suppressed table forwards its updates, and how much it may hold back.

Value objects; `kernel/processors/suppress.py` applies them to a table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Generic, TypeVar

from deltaworks.serdes.windowed import Windowed
from deltaworks.topology.durations import milliseconds

K_contra = TypeVar("K_contra", contravariant=True)


@dataclass(frozen=True)
class BufferConfig:
    """How much may be held back per task, and what happens when the buffer is full.

    Bytes are counted as Kafka Streams does: per key 8 + the key + the values held + 20 + the name of the topic + the
    headers, all as they are serialized. Names of exchanges are shorter here than those of Kafka's repartition topics.

    Source: `Suppressed.BufferConfig`; differs: buffers are part of the checkpoint, so `withLoggingDisabled` is missing.

    >>> BufferConfig.of_max_records(1_000).with_max_bytes(1 << 20).shut_down_when_full()
    BufferConfig(max_records=1000, max_bytes=1048576, emits_early=False)
    """

    max_records: int | None = None
    """None if there is no bound."""
    max_bytes: int | None = None
    """None if there is no bound."""
    emits_early: bool = False
    """Whether a full buffer forwards its oldest update; else the stream stops."""

    def __post_init__(self) -> None:
        for what, bound in (("records", self.max_records), ("bytes", self.max_bytes)):
            if bound is not None and bound < 0:
                raise ValueError(f"a buffer cannot hold {bound} {what}; give 0 or more, or no bound")

    @classmethod
    def unbounded(cls) -> BufferConfig:
        """As many updates as memory can hold."""
        return cls()

    @classmethod
    def of_max_records(cls, records: int) -> BufferConfig:
        """At most this many keys; a full buffer emits early, unless you add `shut_down_when_full`."""
        return cls(max_records=records, emits_early=True)

    @classmethod
    def of_max_bytes(cls, size_bytes: int) -> BufferConfig:
        """At most this many bytes; a full buffer emits early, unless you add `shut_down_when_full`."""
        return cls(max_bytes=size_bytes, emits_early=True)

    def with_max_records(self, records: int) -> BufferConfig:
        """The same with at most this many keys."""
        return replace(self, max_records=records)

    def with_max_bytes(self, size_bytes: int) -> BufferConfig:
        """The same with at most this many bytes."""
        return replace(self, max_bytes=size_bytes)

    def with_no_bound(self) -> BufferConfig:
        """The same without bounds."""
        return BufferConfig()

    def emit_early_when_full(self) -> BufferConfig:
        """A full buffer forwards its oldest update before its time."""
        return replace(self, emits_early=True)

    def shut_down_when_full(self) -> BufferConfig:
        """A full buffer stops the stream with an error, so no update is ever forwarded early."""
        return replace(self, emits_early=False)


@dataclass(frozen=True)
class Suppressed(Generic[K_contra]):
    """Which updates of a table are held back, for `KTable.suppress`.

    Source: `Suppressed`; differs: the name is an argument of `suppress`.

    >>> from deltaworks import StreamsBuilder, TimeWindows
    >>> from deltaworks.testing import TopologyTestDriver
    >>> builder = StreamsBuilder()
    >>> clicks = builder.stream("clicks", key=str, value=str).group_by_key()
    >>> counts = clicks.windowed_by(TimeWindows(size=timedelta(minutes=1), grace=timedelta(0))).count(store="counts")
    >>> final = counts.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()), name="final")
    >>> final.to_stream().to("final")
    >>> driver = TopologyTestDriver(builder.build())
    >>> for time in (1_000, 2_000, 60_000):  # the last one closes the first minute
    ...     driver.create_input_topic("clicks").pipe_input("ann", "click", timestamp_ms=time)
    >>> [(str(key), count) for key, count in driver.create_output_topic("final").read_key_values_to_list()]
    [('[ann@0/60000]', 2)]
    """

    buffer: BufferConfig
    limit: timedelta | None
    """How long the first update of a key is held back, in stream time; None: until the window closes."""

    @staticmethod
    def until_window_closes(buffer: BufferConfig) -> Suppressed[Windowed[Any]]:
        """One result per window: the last one, once no record can change it any more.

        Args:
            buffer: a buffer that does not emit early, or results would not be final.

        Source: `Suppressed#untilWindowCloses`; differs: no.
        """
        if buffer.emits_early:
            raise ValueError(
                "until_window_closes cannot emit early, because the result would not be final;"
                " use BufferConfig.unbounded(), or .shut_down_when_full()"
            )
        return Suppressed(buffer, None)

    @staticmethod
    def until_time_limit(limit: timedelta, buffer: BufferConfig) -> Suppressed[Any]:
        """At most one update per key and time: an update waits this long for later ones of its key, which replace it.

        Args:
            limit: in stream time, from the first update of a key that is held back; 0 lets everything pass.
            buffer: how much may wait.

        Source: `Suppressed#untilTimeLimit`; differs: no.
        """
        if milliseconds(limit, "a time limit") < 0:
            raise ValueError(f"a time limit cannot be negative, but is {limit}")
        return Suppressed(buffer, limit)

    @property
    def wait_ms(self) -> int | None:
        """The limit in milliseconds."""
        return None if self.limit is None else milliseconds(self.limit, "a time limit")
