"""Windows that an author writes, for spans of time that no other kind has: calendar days, shifts, business hours.

`kernel/processors/own_windows.py` says how they are aggregated.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import ClassVar

from deltaworks.topology.durations import as_code, milliseconds
from deltaworks.topology.keywords import Keywords


@dataclass(frozen=True, kw_only=True)
class Windows(Keywords):
    """Base of your own windows: a frozen dataclass that says in which windows `[start, end)` a timestamp lies.

    The windows may overlap, have gaps between them, and differ in length. They must not depend on anything but the
    timestamp and the fields. Their state belongs to the name of the class and to all fields except `grace`: if the
    windows become others, change one of these, and the old state is refused. A session, which depends on the records,
    is no such window.

    Args:
        size: at least the length of the longest window. It says how long a store keeps a window.
        grace: for how long after its end, in stream time, a window takes records; `timedelta(0)`: it drops late ones.

    Source: `Windows`; differs: windows may differ in length. As there, a window is stored by its start, so windows with
    the same start have the same end.

    >>> from datetime import datetime, time
    >>> from zoneinfo import ZoneInfo
    >>> from deltaworks import StreamsBuilder
    >>> from deltaworks.testing import TopologyTestDriver
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Days(Windows):
    ...     '''The days of a time zone. They have 23 or 25 hours when the clocks change.'''
    ...     zone: str
    ...     size: timedelta = timedelta(hours=25)
    ...     def windows_for(self, timestamp_ms: int) -> Iterable[tuple[int, int]]:
    ...         zone = ZoneInfo(self.zone)
    ...         day = datetime.fromtimestamp(timestamp_ms / 1000, zone).date()
    ...         midnights = (datetime.combine(date, time(), zone) for date in (day, day + timedelta(days=1)))
    ...         start_ms, end_ms = (int(midnight.timestamp()) * 1000 for midnight in midnights)
    ...         return [(max(0, start_ms), end_ms)]
    >>> builder = StreamsBuilder()
    >>> clicks = builder.stream("clicks", key=str, value=str).group_by_key()
    >>> days = Days(zone="Europe/Berlin", grace=timedelta(hours=1))
    >>> clicks.windowed_by(days).count(store="clicks").to_delta("clicks")
    >>> driver = TopologyTestDriver(builder.build())
    >>> for hour in (0, 22, 23):  # in UTC; the clocks change on this day, which begins at 23:00 and ends at 22:00
    ...     at = datetime.fromisoformat(f"2026-03-29T{hour:02}:00+00:00")
    ...     driver.create_input_topic("clicks").pipe_input("ann", "", timestamp_ms=int(at.timestamp()) * 1000)
    >>> for key, count in driver.table("clicks").rows.items():
    ...     print(key.start, key.end - key.start, count)
    2026-03-28 23:00:00+00:00 23:00:00 1
    2026-03-29 22:00:00+00:00 1 day, 0:00:00 2
    """

    size: timedelta
    grace: timedelta

    _example: ClassVar[Mapping[str, str]] = {"size": "timedelta(hours=25)", "grace": "timedelta(0)"}
    _replaced: ClassVar[Mapping[str, str]] = {"grace_period_ms": "windows.grace"}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "windowsFor" in vars(cls):
            raise TypeError(
                f"{cls.__name__} has windowsFor, which is called windows_for here."
                "\n    Hint: def windows_for(self, timestamp_ms): return [(start_ms, end_ms)]"
            )

    def __post_init__(self) -> None:
        if self.size_ms <= 0:
            raise ValueError(f"the size of a window must be at least 1 ms, not {self.size_ms} ms")
        if self.grace_ms < 0:
            raise ValueError(f"the grace of a window must not be negative, but is {self.grace_ms} ms")

    @abstractmethod
    def windows_for(self, timestamp_ms: int, /) -> Iterable[tuple[int, int]]:
        """The windows in which a timestamp lies: `(start_ms, end_ms)` of each, the end exclusive; none is possible.

        All are milliseconds since the epoch. For each window, `start_ms <= timestamp_ms < end_ms`, and no timestamp of
        the window gives it another end.
        """

    @property
    def size_ms(self) -> int:
        """The length of the longest window in milliseconds."""
        return milliseconds(self.size, "the size of a window")

    @property
    def grace_ms(self) -> int:
        """The grace in milliseconds."""
        return milliseconds(self.grace, "the grace of a window")

    def end_of(self, start_ms: int) -> int:
        """The end of the window that starts then."""
        for start, end_ms in self.windows_of(start_ms):
            if start == start_ms:
                return end_ms
        raise ValueError(f"windows_for({start_ms}) of {self.name} has no window that starts at {start_ms}")

    def windows_of(self, timestamp_ms: int) -> list[tuple[int, int]]:
        """What `windows_for` returns, checked, in the order of the starts.

        Raises:
            TypeError: it is not a number of pairs of integers.
            ValueError: a window does not hold the timestamp, begins before the epoch, or is longer than `size`.
        """
        given = self.windows_for(timestamp_ms)
        call = f"windows_for({timestamp_ms}) of {self.name}"
        if not isinstance(given, Iterable):
            raise TypeError(f"{call} returned {given!r}, not pairs of start and end, such as [(0, 60_000)]")
        found: dict[int, int] = {}
        for window in given.items() if isinstance(given, Mapping) else given:
            match window:
                case (int(start_ms), int(end_ms)) if start_ms not in found:
                    found[start_ms] = end_ms
                case (int(), int()):
                    raise ValueError(f"{call} returned two windows that start at {window[0]}")
                case _:
                    raise TypeError(f"{call} returned {window!r}, not a pair of start and end, such as (0, 60_000)")
            if not 0 <= start_ms <= timestamp_ms < end_ms:
                raise ValueError(
                    f"{call} returned [{start_ms}, {end_ms}), which does not hold it or begins before 1970"
                )
            if end_ms - start_ms > self.size_ms:
                raise ValueError(
                    f"{call} returned [{start_ms}, {end_ms}), which is {end_ms - start_ms} ms long; its size is only"
                    f" {as_code(self.size)}"
                )
        return sorted(found.items())

    @property
    def name(self) -> str:
        """The class with its fields except `grace`: what the state of an aggregate belongs to."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "grace"}
        shown = (f"{name}={as_code(value) if name == 'size' else repr(value)}" for name, value in values.items())
        return f"{type(self).__name__}({', '.join(shown)})"
