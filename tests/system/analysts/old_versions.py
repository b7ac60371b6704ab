"""A reader that opened its files two hours ago still reads them; a pin holds for 100 days; what nobody keeps goes.

Only the clock is not real: committer, log, housekeeping and retention see one that goes on with each commit. Tables,
their files, what is deleted, and readers are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from deltaworks.errors import ConfigurationError
from deltaworks.lakehouse import cuts, retention
from deltaworks.lakehouse.committer import TableCommitter
from deltaworks.lakehouse.cuts import Cut
from deltaworks.settings import Settings
from tests.benchmarks.retention import simulated
from tests.system.analysts.findings import Findings
from tests.system.analysts.readers import ONLY_NOW, READERS, Place, Reader, Rows, Wanted, counted
from tests.unit.lakehouse.lake import DEAD, QUERY, SINKS, Expected, task_tables, write_batch

SHOP = "shop"
START = datetime(2026, 3, 1, 10, 0, 7, tzinfo=UTC)
STEP, LONG_STEP = timedelta(minutes=1), timedelta(hours=6)
"""Between two commits: in the first hours, and in the hundred days."""
HOURS, DAYS = timedelta(hours=2), timedelta(days=100)
PIN = "audit"
AT_ONCE = ("deltaworks sql",)
"""Readers that cannot open a table now and read it later."""
WANTED: Wanted = {
    "orders": {"key": "other", "source_offset": "other"},
    "users": {"key": "other", "name": "other"},
    "counts": {"key": "other", "window_start": "time", "window_end": "time", "value": "other"},
    "users_changelog": {"source_offset": "other"},
    DEAD: {"offset": "other"},
}


class Shop:
    """A stream into every kind of table, with the default retention and a clock of its own."""

    def __init__(self, root: Path) -> None:
        self.root, self.now, self.batches, self.expected = root, START, 0, Expected()

    def open(self) -> None:
        self.committer = TableCommitter(self.root, SHOP, QUERY, SINKS, DEAD)
        self.committer.open(1)
        self.tables = task_tables(self.root)
        self.committer.settled(-1)

    def ms(self) -> int:
        return round(self.now.timestamp() * 1000)

    def run(self, period: timedelta, every: timedelta) -> None:
        end = self.now + period
        while self.now < end:
            self.committer.commit(self.batches, write_batch(self.tables, self.batches, self.expected))
            self.committer.refresh_snapshots(force=True)
            self.committer.publish_cut()
            self.committer.settle()
            self.batches += 1
            self.now += every

    @property
    def cut(self) -> Cut:
        return cuts.required(self.root, SHOP)


def check(work: Path, findings: Findings, seconds: float) -> None:
    """Some minutes; the budget does not matter."""
    settings = replace(Settings.from_environment({}), home=work / "home")
    shop = Shop(settings.tables)
    with simulated(shop.ms), ExitStack() as stack:
        shop.open()
        readers = dict(_readers(settings, work, stack))
        _read_late(Place(settings, SHOP), shop, readers, findings)
        _pinned(Place(settings, SHOP), shop, readers, findings)
        shop.committer.close()
    findings.counts["simulated commits"] = shop.batches


def _readers(settings: Settings, work: Path, stack: ExitStack) -> Iterator[tuple[str, Reader]]:
    for number, (name, made) in enumerate(READERS.items()):
        if name in ONLY_NOW:
            continue
        scratch = work / f"reader-{number}"
        scratch.mkdir()
        yield name, stack.enter_context(made(settings, scratch))


def _read_late(place: Place, shop: Shop, readers: Mapping[str, Reader], findings: Findings) -> None:
    """Opened now, read two hours later; an hour and a half after that the files are gone."""
    shop.run(timedelta(minutes=20), STEP)
    cut, expected, begun = shop.cut, deepcopy(shop.expected), time.monotonic()
    opened = {name: reader(place, WANTED, None) for name, reader in readers.items() if name not in AT_ONCE}
    files = _files(shop, cut)
    before = shop.batches
    shop.run(HOURS, STEP)
    findings.say(
        f"{HOURS} of the simulated clock took {time.monotonic() - begun:.0f} s: "
        f"{shop.batches - before} commits, one each {STEP.seconds} seconds of it"
    )
    replaced = len(files - _files(shop, shop.cut))
    findings.holds(f"{replaced} of {len(files)} files that the readers had opened were replaced since", replaced > 0)
    for name, each in opened.items():
        _equal(f"{name}, opened {HOURS} ago", each.read, expected, findings)
    shop.run(timedelta(hours=1, minutes=40), STEP)
    _gone(f"after {HOURS + timedelta(hours=1, minutes=40)}, what nobody keeps", shop, cut, files, findings)


def _pinned(place: Place, shop: Shop, readers: Mapping[str, Reader], findings: Findings) -> None:
    """A cut that is not the last one of its hour or day."""
    shop.run(timedelta(minutes=25) - timedelta(minutes=shop.now.minute % 20), STEP)
    pin = retention.pin(shop.root, PIN, SHOP, by="check-analysts")
    expected, files, before = deepcopy(shop.expected), _files(shop, pin.cut), shop.batches
    begun = time.monotonic()
    shop.run(timedelta(minutes=10), STEP)
    shop.run(DAYS, LONG_STEP)
    findings.say(
        f"{DAYS.days} days of the clock took {time.monotonic() - begun:.0f} s: {shop.batches - before} commits"
    )
    replaced = len(files - _files(shop, shop.cut))
    findings.holds(f"{replaced} of {len(files)} pinned files were replaced since", replaced > 0)
    for name, reader in readers.items():
        _equal(f"{name}, pinned {DAYS.days} days ago", partial(_read_at_once, reader, place), expected, findings)
    retention.unpin(shop.root, PIN, SHOP)
    shop.run(timedelta(hours=3), timedelta(minutes=10))
    _gone("unpinned, it", shop, pin.cut, files, findings)


def _read_at_once(reader: Reader, place: Place) -> Rows:
    return reader(place, WANTED, PIN).read()


def _equal(what: str, read: Callable[[], Rows], expected: Expected, findings: Findings) -> None:
    try:
        found = read()
    except Exception as error:
        findings.holds(f"{what}: {type(error).__name__}: {error}", False)
        return
    right = _rows(expected)
    for table, rows in right.items():
        missing, other = rows - found[table], found[table] - rows
        findings.rows_equal(f"{what}: {table}", rows.total(), missing.total() + other.total())
        for sign, some in (("-", missing), ("+", other)):
            for row in sorted(some)[:5]:
                findings.say(f"  {what}: {table}: {sign} {row}")
    for table, count in (("users_changelog", expected.changes), (DEAD, expected.letters)):
        findings.rows_equal(f"{what}: {table}", count, abs(count - found[table].total()))


def _rows(expected: Expected) -> Rows:
    """What a reader has to find, as text."""
    counts = [(key, str(start * 1000), str(end * 1000), value) for (key, start, end), value in expected.counts.items()]
    return {
        "orders": counted(WANTED["orders"].values(), expected.orders),
        "users": counted(WANTED["users"].values(), list(expected.users.items())),
        "counts": counted(WANTED["counts"].values(), counts),
    }


def _gone(what: str, shop: Shop, cut: Cut, files: frozenset[Path], findings: Findings) -> None:
    left = sum(path.exists() for path in files - _files(shop, shop.cut))
    try:
        for table in cut.tables:
            cuts.readable(shop.root, cut, table)
        findings.holds(f"{what} is gone ({left} of its files are there)", False)
    except ConfigurationError as error:
        findings.holds(
            f"{what} is gone ({left} of its files are there, as kept hours have them): {error.message}", True
        )


def _files(shop: Shop, cut: Cut) -> frozenset[Path]:
    """All files of the tables as of a cut."""
    return frozenset(
        Path(uri.removeprefix("file://"))
        for table in cut.tables
        for uri in cuts.readable(shop.root, cut, table).file_uris()
    )
