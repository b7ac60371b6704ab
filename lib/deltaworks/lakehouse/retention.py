"""How long versions of tables can be read, and which ones outlive the rest.

Every version stays for some hours, so that a query that has begun finds its files to its end. Of what is older, the
last cut of each hour stays, then that of each day, then none; a pin keeps a cut until somebody takes it away. The files
of `cuts` are the list of what is kept: when they name fewer cuts, the rest is deleted, and not before.

```
<tables>/_cuts/<pipeline>/<hour>.jsonl       all cuts of an hour; once it is old, only the last one
<tables>/_cuts/<pipeline>/pins/<name>.json   a cut that somebody keeps
```

A version that outlives its neighbours has a checkpoint of its own, so that it can be read without the commits before,
and its commit, so that the table's history still names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from deltaworks import durations, files, formats
from deltaworks.clock import wall_ms
from deltaworks.errors import ConfigurationError
from deltaworks.lakehouse import cuts
from deltaworks.lakehouse.cuts import Cut
from deltaworks.names import PIN, PIPELINE

PIN_FORMAT = 1
"""Version of the file of a pin."""
_PINS = "pins"
_MARGIN_MS = 15 * 60_000
"""Who is that close to the end of its time may be deleted while it is pinned."""
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class Retention:
    """How long the tables of a pipeline can be read as they were."""

    versions: timedelta = timedelta(hours=3)
    """Every version. A query may take this long; longer ones need an hour, a day or a pin."""
    hours: timedelta = timedelta(days=7)
    """The last cut of each UTC hour."""
    days: timedelta = timedelta(days=90)
    """The last cut of each UTC day."""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Retention:
        """Reads what `[retention]` in `deltaworks.toml` says, such as `{"versions": "6 hours", "days": "0 days"}`.

        Raises:
            ConfigurationError: one is no duration.
        """
        return cls(**{name: durations.parse(text, f"retention.{name}") for name, text in given.items()})

    @classmethod
    def only(cls, versions: timedelta) -> Retention:
        """Nothing outlives the rest."""
        return cls(versions=versions, hours=timedelta(0), days=timedelta(0))

    @property
    def longest(self) -> timedelta:
        return max(self.versions, self.hours, self.days)

    @property
    def properties(self) -> dict[str, str]:
        """As properties of a Delta table, which other engines obey when they look back or clean up."""
        interval = f"interval {durations.text(self.longest)}"
        return {"delta.logRetentionDuration": interval, "delta.deletedFileRetentionDuration": interval}


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """A cut that stays readable until it is unpinned."""

    format: int = PIN_FORMAT
    name: str
    cut: Cut
    pinned_ms: int
    by: str
    reason: str = ""

    @property
    def pinned_at(self) -> datetime:
        return datetime.fromtimestamp(self.pinned_ms / 1000, UTC)


class KeptCuts:
    """The cuts of one pipeline that outlive the others; for the only committer of its tables.

    Args:
        root: folder of all tables.
        pipeline: its name.
        retention: how long.
    """

    def __init__(self, root: Path, pipeline: str, retention: Retention) -> None:
        self._root, self._pipeline, self.retention = root, pipeline, retention
        self._folder = cuts.folder(root, pipeline)
        self._thinned: datetime | None = None
        self._last: dict[str, Cut] = {}
        """The last cut of each hour that is over."""

    def versions(self, table: str, now: datetime) -> dict[int, str]:
        """The versions of a table that outlive the others -> the query that the table belonged to.

        It drops the cuts that need not outlive the others any more.

        Raises:
            DeltaworksError: the file of a pin cannot be read.
        """
        if not self._folder.is_dir():
            return {}
        with files.alone(self._folder):
            if (hour := now.replace(minute=0, second=0, microsecond=0)) != self._thinned:
                self._thin(now)
                self._thinned = hour
            return {cut.tables[table]: cut.query for cut in self._kept(now) if table in cut.tables}

    def _thin(self, now: datetime) -> None:
        days: set[str] = set()
        for file in reversed(self._hours()):
            age, day = now - cuts.hour_of(file) - _HOUR, file.name[:10]
            newest_of_day = day not in days
            if age < self.retention.versions:
                days.add(day)
            elif age <= self.retention.hours or (age <= self.retention.days and newest_of_day):
                days.add(day)
                self._keep_last(file)
            else:
                file.unlink()
                self._last.pop(file.name, None)

    def _kept(self, now: datetime) -> list[Cut]:
        """The last cut of every hour that is over, and the pinned ones."""
        over = [file for file in self._hours() if cuts.hour_of(file) + _HOUR <= now]
        for file in over:
            if file.name not in self._last and (last := cuts.last_in(file)) is not None:
                self._last[file.name] = last
        kept = [self._last[file.name] for file in over if file.name in self._last]
        return kept + [pin.cut for pin in pins(self._root, self._pipeline)]

    def _hours(self) -> list[Path]:
        return sorted(self._folder.glob("*.jsonl"))

    def _keep_last(self, file: Path) -> None:
        """Leaves only the last cut in the file of an hour, durably."""
        data = file.read_bytes()
        if data.count(b"\n") == 1 and data.endswith(b"\n"):
            return
        if (last := cuts.last_in(file)) is not None:
            files.replace_file(file, msgspec.json.encode(last) + b"\n", durable=True)
        else:
            file.unlink()


def pins(root: Path, pipeline: str) -> list[Pin]:
    """The pins of a pipeline, by name.

    Raises:
        ConfigurationError: the file of a pin cannot be read.
    """
    folder = cuts.folder(root, pipeline) / _PINS
    found = (_read(file) for file in sorted(folder.glob("*.json"))) if folder.is_dir() else ()
    return [pin for pin in found if pin is not None]


def all_pins(root: Path) -> list[Pin]:
    """The pins of all pipelines, by pipeline and name; raises as `pins` does."""
    return [pin for pipeline in cuts.pipelines(root) for pin in pins(root, pipeline)]


def pinned(root: Path, name: str) -> dict[str, Cut]:
    """Pipeline -> its cut that has a pin of this name.

    Raises:
        ConfigurationError: no pipeline has one, or the file of a pin cannot be read.
    """
    every = all_pins(root)
    found = {pin.cut.pipeline: pin.cut for pin in every if pin.name == name}
    if not found:
        known = ", ".join(sorted({pin.name for pin in every})) or "none"
        raise ConfigurationError(f"There is no pin '{name}'.", hint=f"pins: {known}; a time is 2026-03-01T12:00")
    return found


def pin(
    root: Path,
    name: str,
    pipeline: str,
    at: datetime | None = None,
    *,
    by: str,
    reason: str = "",
    retention: Retention | None = None,
) -> Pin:
    """Keeps the tables of a pipeline as they are, or were at a time, until `unpin`.

    Args:
        root: folder of all tables.
        name: name of the pin.
        pipeline: name of the pipeline.
        at: the time; None: now.
        by: who wants it.
        reason: why.
        retention: how long the tables can be read; None: as by default.

    Raises:
        ConfigurationError: there is a pin of this name; there is no such pipeline; or its tables of that time are not
            known, or cannot be read any more, or will soon be deleted.
    """
    file = _file(root, name, pipeline)
    with files.alone(cuts.folder(root, pipeline)):
        if (there := _read(file)) is not None:
            raise ConfigurationError(
                f"There is a pin '{name}' of '{pipeline}' already, as of {there.cut.at:%Y-%m-%d %H:%M:%S} UTC.",
                hint="choose another name, or take it away first: deltaworks tables unpin",
            )
        cut = cuts.required(root, pipeline, at)
        _check_stays(root, cut, retention or Retention())
        for table in cut.tables:
            cuts.readable(root, cut, table)
        made = Pin(name=name, cut=cut, pinned_ms=wall_ms(), by=by, reason=reason)
        files.replace_file(file, msgspec.json.encode(made), durable=True)
    return made


def unpin(root: Path, name: str, pipeline: str) -> Pin:
    """Takes a pin away. What only it has kept is deleted within minutes, if the stream runs, else after its start.

    Raises:
        ConfigurationError: there is no such pin.
    """
    file = _file(root, name, pipeline)
    with files.alone(cuts.folder(root, pipeline)):
        if (there := _read(file)) is None:
            known = ", ".join(each.name for each in pins(root, pipeline)) or "none"
            raise ConfigurationError(f"There is no pin '{name}' of '{pipeline}'.", hint=f"its pins: {known}")
        file.unlink()
        files.sync_folder(file.parent)
    return there


def _check_stays(root: Path, cut: Cut, retention: Retention) -> None:
    """Refuses a cut whose files are being deleted, because it is old and not the last one of its hour."""
    if wall_ms() - cut.at_ms < retention.versions / timedelta(milliseconds=1) - _MARGIN_MS:
        return
    kept = cuts.last_in(cuts.hour_file(root, cut))
    if cut.at_ms < cuts.required(root, cut.pipeline).at_ms and (kept is None or kept.batch_id != cut.batch_id):
        which = "none of this hour" if kept is None else f"{kept.at:%Y-%m-%d %H:%M:%S} UTC"
        raise ConfigurationError(
            f"The tables of '{cut.pipeline}' as of {cut.at:%Y-%m-%d %H:%M:%S} UTC are being deleted.",
            hint=f"the last ones of an hour stay: {which}",
        )


def _file(root: Path, name: str, pipeline: str) -> Path:
    cuts.required(root, PIPELINE.checked(pipeline))
    folder = cuts.folder(root, pipeline) / _PINS
    return folder / f"{PIN.checked(name, folder)}.json"


def _read(file: Path) -> Pin | None:
    damaged = "bring it back from a copy, or remove the file; until then nothing is deleted"
    return formats.read(file, Pin, PIN_FORMAT, f"The pin {file}", damaged=damaged, error=ConfigurationError)
