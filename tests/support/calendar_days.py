"""An author's own windows, as several tests use them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from deltaworks import Windows


@dataclass(frozen=True, kw_only=True)
class Days(Windows):
    """The days of a time zone, which have 23 or 25 hours when the clocks change."""

    zone: str
    size: timedelta = timedelta(hours=25)

    def windows_for(self, timestamp_ms: int) -> Iterable[tuple[int, int]]:
        zone = ZoneInfo(self.zone)
        day = datetime.fromtimestamp(timestamp_ms / 1000, zone).date()
        midnights = (datetime.combine(date, time(), zone) for date in (day, day + timedelta(days=1)))
        start_ms, end_ms = (int(midnight.timestamp()) * 1000 for midnight in midnights)
        return [(max(0, start_ms), end_ms)]
