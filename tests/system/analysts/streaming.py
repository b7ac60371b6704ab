"""Every reader asks again and again while `orders` streams, its driver is killed, and replays are published.

The replays run the same code, so what they publish replaces files and rows, but must not change what readers find.
Meanwhile each answer is compared with the recomputation as of the batch that the reader was shown.
"""

from __future__ import annotations

import hashlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from deltaworks.control.topics import prepare
from deltaworks.lakehouse import cuts
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack.lifecycle import down, up
from jobs.orders import pipeline
from tests.support.live_stack import reachable
from tests.support.repeated import repeated
from tests.system.analysts import recomputed
from tests.system.analysts.findings import Findings
from tests.system.analysts.readers import READERS, Place, Rows
from tests.system.analysts.recomputed import Recomputed
from tests.system.kills.stream_under_kills import StreamUnderKills
from tests.system.replays.project import Project, until
from tests.system.sample_data import flowing

RATE = 10.0
PATIENCE_S = 900.0
"""For a machine on which each thing takes long."""
_PAUSE_S = 15.0
_EVERY_S = 0.1
FIRST = "1500"
"""Records before the readers begin: more than the two hours that the first day has."""
DAYS = ("--from", "2026-03-01", "--to", "2026-03-02")
CHOSEN = (
    ("--table", "users"),
    (*DAYS, "--table", "enriched_orders", "--table", "order_counts"),
    (*DAYS, "--table", "user_revenue", "--table", "dead_letters"),
)
"""What is published: a KTable as a whole, or days of other tables."""
_SHOWN = 5
"""Differences that are printed of an answer."""
Digests = tuple[str, ...]


@dataclass
class Answers:
    """What readers have found and nobody has compared yet; equal rows are kept once."""

    given: Counter[tuple[str, range, Digests]] = field(default_factory=Counter)
    """By reader, batches and rows, how often."""
    rows: dict[Digests, Rows] = field(default_factory=dict)


@dataclass
class Asked:
    """What all readers have found so far."""

    pending: Answers = field(default_factory=Answers)
    answers: Counter[str] = field(default_factory=Counter)
    """By reader."""
    failed: list[str] = field(default_factory=list)
    cuts: set[int] = field(default_factory=set)
    """Batches that were recomputed."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, reader: str, batches: range, rows: Rows) -> None:
        digests = digested(rows)
        with self._lock:
            self.answers[reader] += 1
            self.pending.given[reader, batches, digests] += 1
            self.pending.rows.setdefault(digests, rows)

    def take(self) -> Answers:
        """What nobody has compared yet; somebody does now."""
        with self._lock:
            taken, self.pending = self.pending, Answers()
            return taken

    @property
    def by_all(self) -> bool:
        """Whether every reader has answered."""
        return all(self.answers[name] for name in READERS)


def digested(rows: Rows) -> Digests:
    """Equal if the rows of all tables are."""
    return tuple(hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest() for _, found in sorted(rows.items()))


def check(work: Path, findings: Findings, seconds: float) -> None:
    """For so many seconds, and until each thing has happened at least once."""
    settings = own_settings(reachable(work) / "home")
    up(settings, print, only=("kafka", "postgres", "registry"), tethered=True)
    try:
        _stream(settings, work, findings, seconds)
    finally:
        down(settings)


def _stream(settings: Settings, work: Path, findings: Findings, seconds: float) -> None:
    project, rng, asked = Project(settings), random.Random(1), Asked()
    prepare(settings.cluster, pipeline, pipeline.plan(), begun=False)
    assert project.deltaworks("produce", "orders", "--records", FIRST).code == 0
    stream = StreamUnderKills(settings, work, findings.say)
    with flowing(settings, RATE, continued=True), stream.running():
        until(lambda: _has_rows(settings), "the cut of the first batch")
        with ExitStack() as threads:
            threads.enter_context(repeated(nullcontext(lambda: _compare(settings, findings, asked)), _EVERY_S))
            for number, name in enumerate(READERS):
                scratch = work / f"reader-{number}"
                scratch.mkdir()
                asking = _asking(name, Place(settings, "orders"), scratch, asked, findings)
                threads.enter_context(repeated(asking, _EVERY_S))
            published = _disturb(project, stream, asked, findings, rng, seconds)
    _compare(settings, findings, asked)
    findings.holds(f"{len(stream.outcome.kills)} SIGKILLs of the driver", bool(stream.outcome.kills))
    for what, count in published.items():
        findings.holds(f"{count} replays were {what}", count > 0)
    for name in READERS:
        findings.holds(f"{name} has answered {asked.answers[name]:,} times", asked.answers[name] > 0)
    for failed in asked.failed:
        findings.holds(failed, False)
    findings.counts |= {
        "answers": asked.answers.total(),
        "readers": len(READERS),
        "cuts": len(asked.cuts),
        "kills": len(stream.outcome.kills),
        "publishes": published["published"],
        "rollbacks": published["rolled back"],
    }


def _has_rows(settings: Settings) -> bool:
    """A stream publishes its first cut before its first batch."""
    cut = cuts.latest(settings.tables, "orders")
    return cut is not None and cut.batch_id >= 0


@contextmanager
def _asking(name: str, place: Place, scratch: Path, asked: Asked, findings: Findings) -> Iterator[Callable[[], None]]:
    """What asks a reader once."""
    wanted = recomputed.wanted()
    with READERS[name](place.settings, scratch) as reader:

        def ask() -> None:
            try:
                opened = reader(place, wanted, None)
                rows = opened.read()
            except Exception as error:
                asked.failed.append(f"{name} failed with {type(error).__name__}: {error}")
                findings.say(asked.failed[-1])
            else:
                asked.add(name, opened.batches, rows)

        yield ask


def _disturb(
    project: Project, stream: StreamUnderKills, asked: Asked, findings: Findings, rng: random.Random, seconds: float
) -> Mapping[str, int]:
    """Kills the driver and publishes replays, side by side, until the time is over and each has happened."""
    done = {"published": 0, "rolled back": 0}

    def publish() -> None:
        chosen = rng.choice(CHOSEN)
        if (run := _published(project, findings, chosen)) is not None:
            done["published"] += 1
            answer = project.deltaworks("rollback", run)
            findings.say(f"rolled back {' '.join(chosen)} (exit code {answer.code})")
            done["rolled back"] += answer.code == 0

    begun = time.monotonic()
    with repeated(nullcontext(publish), _EVERY_S):
        while time.monotonic() < begun + seconds or not (asked.by_all and all(done.values())):
            if time.monotonic() > begun + 4 * seconds + PATIENCE_S:
                break
            try:
                stream.kill("driver", rng)
            except AssertionError as slow:
                findings.say(f"no kill: {str(slow).partition(';')[0]}")
            findings.say(f"answers so far: {dict(asked.answers)}")
            time.sleep(rng.uniform(0, _PAUSE_S))
    return done


def _published(project: Project, findings: Findings, chosen: tuple[str, ...]) -> str | None:
    """The id of a replay that is published; None: a kill was in its way, and it is discarded."""
    answer = project.deltaworks("replay", "orders", *chosen, "--reason", "check-analysts", "--yes")
    run = answer.run
    for _ in range(5):
        if answer.code == 0:
            findings.say(f"published {' '.join(chosen)}")
            return run
        findings.say(f"the replay {' '.join(chosen)} ended with {answer.code}: {answer.text.strip()[-300:]}")
        left = project.unfinished("orders")
        if not left:
            return None
        run = left[0]
        answer = project.deltaworks("replay", "orders", "--resume", run, "--yes")
    project.deltaworks("discard", run)
    return None


def _compare(settings: Settings, findings: Findings, asked: Asked) -> None:
    """Each answer since the last call against itself, and against the recomputation."""
    answers = asked.take()
    if not answers.given:
        return
    wanted = recomputed.wanted()
    right, expected = Recomputed(settings, wanted), dict[int, Digests]()
    for (name, batches, digests), count in sorted(answers.given.items(), key=lambda each: each[0][1].start):
        found = answers.rows[digests]
        what = f"{name}, cut of batch {_shown(batches)} ({count} answers)"
        for line in list(recomputed.disagreeing(found, wanted))[:_SHOWN]:
            findings.holds(f"{what}: {line}", False)
        equal = False
        for batch in reversed(batches):  # it was rather the last one
            if batch not in expected:
                expected[batch] = digested(right.at(batch))
                asked.cuts.add(batch)
            if equal := expected[batch] == digests:
                break
        rows = sum(rows.total() for rows in found.values())
        findings.rows_equal(what, rows, 0 if equal else _differences(findings, right, what, batches, found))


def _differences(findings: Findings, right: Recomputed, what: str, batches: range, found: Rows) -> int:
    """Prints the first rows that differ from those of the last batch; how many there are."""
    count = 0
    for table, rows in right.at(batches[-1]).items():
        missing, other = rows - found[table], found[table] - rows
        count += missing.total() + other.total()
        for sign, some in (("-", missing), ("+", other)):
            for row in sorted(some)[:_SHOWN]:
                findings.say(f"  {what}: {table}: {sign} {row}")
    return count


def _shown(batches: range) -> str:
    return str(batches.start) if len(batches) == 1 else f"{batches.start} to {batches[-1]}"
