"""One run: broker, streams, flow and readers; rounds of faults, each with recovery and a comparison."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from deltaworks.control import jobs
from deltaworks.errors import KafkaReadError
from deltaworks.kafka import admin
from deltaworks.settings import Settings
from tests.support.fault_hooks import VARIABLE
from tests.support.live_stack import has_read, settled_end_offsets
from tests.system.soak import models, tables
from tests.system.soak.faulty_disk import Disk
from tests.system.soak.flow import Flow
from tests.system.soak.hooks import BOOT, CLOCK, HOOK
from tests.system.soak.models import Model, Result
from tests.system.soak.record import Fault, Record
from tests.system.soak.streams import Stream
from tests.system.soak.topics import OutsideConsumer, Tail

ROUND_S = 5.0
"""From the end of a batch to the end of the next one, with the pause between them: faults hit somewhere in it."""
START_S, RECOVERY_S = 240.0, 600.0
_SETTLE_S = 60.0
_COMMAND_S = 600.0
_POLL_S = 0.1
_WIDE = "1000"
"""A message on one line: what it says to do is read from it."""
NAMES = ("soak_ledger", "soak_matches", "soak_recreated")


class NotRecoveredError(Exception):
    """A stream does not go on, and there is nothing that its message says to do."""


@dataclass(frozen=True)
class Said:
    """What a command of ours answered."""

    code: int
    text: str


class Soak:
    """The run and what faults need of it."""

    def __init__(
        self, settings: Settings, stack: Settings, broker_disk: Disk, work: Path, record: Record, seed: int, rate: float
    ) -> None:
        """
        Args:
            settings: of the streams: a home and a project of their own.
            stack: of the broker.
            broker_disk: where the broker writes.
            work: where orders, journals and logs lie.
            record: of what happens.
            seed: all choices come from it.
            rate: entries per second.
        """
        self.settings, self.stack, self.broker_disk, self.work, self.record = settings, stack, broker_disk, work, record
        self.rng = random.Random(seed)
        self.shared = work / "faults"
        self.shared.mkdir()
        (self.shared / BOOT).write_text(f"soak-{seed}-0")
        self.boots = 0
        self.disk = Disk((settings.home,), work / "disk")
        self.disk.build()
        self.pipelines = {name: jobs.load(settings, name) for name in NAMES}
        self.plans = {name: pipeline.plan() for name, pipeline in self.pipelines.items()}
        for pipeline in self.pipelines.values():
            admin.create_topics(settings.bootstrap, admin.topic_specs(pipeline.topics))
        self.models: dict[str, Model] = {
            "soak_ledger": models.Ledger(),
            "soak_matches": models.Matches(),
            "soak_recreated": models.Notes(),
        }
        self.streams = {name: self._stream(name) for name in NAMES}
        self.tail = Tail(settings.bootstrap)
        self.flow = Flow(settings.bootstrap, rate, seed)
        sinks = [name for name, kind in self._results() if kind == "topic"]
        self.consumer = OutsideConsumer(settings.bootstrap, sinks, record)
        self.reader = tables.OutsideReader(lambda: self.settings.tables, record.failed)
        self._known: dict[str, tuple[int, int]] = {}
        """Result -> rows that were lost and that came twice at the last comparison."""

    def say(self, line: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)

    def _stream(self, name: str) -> Stream:
        def environment() -> dict[str, str]:
            own = {VARIABLE: str(self.shared / name), "DELTAWORKS_FAULT_HOOK": HOOK, "COLUMNS": _WIDE}
            return {**own, **self.disk.environment()}

        return Stream(name, lambda: self.settings, environment, self.shared, self.say)

    def _results(self) -> list[tuple[str, str]]:
        return [(each.name, each.kind) for model in self.models.values() for each in model.expected()]

    # The streams

    def begin(self) -> None:
        """Until all streams work."""
        for stream in self.streams.values():
            stream.begin()
        self.flow.resume()
        self.until(lambda: all(s.beat() is not None for s in self.streams.values()), START_S, "the streams start")
        self.await_recovery(self.ends(), RECOVERY_S)

    def close(self) -> None:
        """Everything that runs here ends."""
        self.flow.close()
        self.reader.close()
        self.consumer.close()
        for stream in self.streams.values():
            stream.end()

    @contextmanager
    def stopped(self, *names: str, politely: bool = True) -> Iterator[None]:
        """These streams are down meanwhile; nobody reads the tables."""
        chosen = [self.streams[name] for name in names or NAMES]
        for stream in chosen:
            stream.hold()
        for stream in chosen:
            if politely:
                stream.stop()
            else:
                stream.kill_all()
        with self.reader.idle:
            yield
        for stream in chosen:
            stream.go_on()

    def ends(self) -> dict[tuple[str, int], int]:
        """Of all source topics now; a broker that was hit may need a while to answer."""
        topics = [topic for name in self.models for topic in self.models[name].sources]
        end = time.monotonic() + START_S
        while True:
            try:
                return settled_end_offsets(self.settings.bootstrap, topics)
            except KafkaReadError:
                if time.monotonic() > end:
                    raise
            time.sleep(_POLL_S)

    def await_recovery(self, ends: dict[tuple[str, int], int], timeout_s: float = RECOVERY_S) -> None:
        """Until live drivers have processed everything up to `ends`.

        Raises:
            NotRecoveredError: they do not, or one refuses.
        """
        end = time.monotonic() + timeout_s
        while not all(self.has_processed(name, ends) for name in self.streams):
            for stream in self.streams.values():
                if stream.refusal is not None:
                    raise NotRecoveredError(f"{stream.name} refuses: {stream.refusal.text[-1500:]}")
            if time.monotonic() > end:
                behind = [name for name in self.streams if not self.has_processed(name, ends)]
                tails = "\n".join(self.streams[name].tail(12) for name in behind)
                raise NotRecoveredError(f"{', '.join(behind)} did not catch up in {timeout_s:.0f} s:\n{tails}")
            time.sleep(_POLL_S)

    def has_processed(self, name: str, ends: dict[tuple[str, int], int]) -> bool:
        """The live driver of a stream has committed all of these."""
        beat = self.streams[name].beat()
        if beat is None:
            return False
        wanted = {at: end for at, end in ends.items() if at[0] in self.models[name].sources}
        return has_read(beat, wanted)

    def deltaworks(self, *arguments: str) -> Said:
        """A command, as a user gives it, who says yes when it asks."""
        self.say(f"$ deltaworks {' '.join(arguments)}")
        done = subprocess.run(
            [sys.executable, "-m", "deltaworks.cli", *arguments],
            env={**os.environ, **self.settings.process_environment(), **self.disk.environment(), "COLUMNS": _WIDE},
            cwd=self.settings.project, input="y\n", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=_COMMAND_S, check=False,
        )  # fmt: skip
        return Said(done.returncode, done.stdout)

    def until(self, fact: Callable[[], object], seconds: float, what: str) -> bool:
        """Polls; False when the time is over."""
        end = time.monotonic() + seconds
        while not fact():
            if time.monotonic() > end:
                self.say(f"{what}: not within {seconds:.0f} s")
                return False
            time.sleep(_POLL_S)
        return True

    # What the whole machine does

    def move_clock(self, step_s: float) -> float:
        """Sets the wall clock of the streams; returns how far it is ahead then."""
        file = self.shared / CLOCK
        ahead = int(file.read_text()) if file.exists() else 0
        ahead += int(step_s * 1e9)
        temporary = file.with_suffix(".new")
        temporary.write_text(str(ahead))
        temporary.replace(file)
        return ahead / 1e9

    def reboot(self) -> None:
        """Another boot id."""
        self.boots += 1
        (self.shared / BOOT).write_text(f"soak-boot-{self.boots}")

    def move_home(self) -> Path:
        """To another folder; the streams are down."""
        old = self.settings.home
        new = old.with_name(f"home-{len(list(old.parent.glob('home-*'))) + 1}-{self.rng.randrange(10_000)}")
        old.rename(new)
        self.settings = replace(self.settings, home=new)
        self.disk = Disk((new,), self.work / f"disk-of-{new.name}")
        self.disk.build()
        return new

    # Comparing

    def compare(self) -> list[Result]:
        """At a quiet point: the flow pauses, the streams process all, then every result is compared with its model."""
        self.flow.pause()
        try:
            self.await_recovery(self.ends())
            for model in self.models.values():
                for message in self.tail.read(model.sources):
                    model.take(message)
            return self._settled_results()
        finally:
            self.flow.resume()

    def _settled_results(self) -> list[Result]:
        """Snapshots and punctuators come a little later than the last record."""
        expected = [each for model in self.models.values() for each in model.expected()]
        results: dict[str, Result] = {}
        end = time.monotonic() + _SETTLE_S
        while True:
            self.consumer.catch_up()
            for each in expected:
                before = results.get(each.name)
                if before is not None and before.equal:
                    continue
                topic = each.kind == "topic"
                found = self.consumer.rows[each.name] if topic else tables.rows(self.settings.tables, each.name)
                results[each.name] = models.compared(each, found)
            if all(result.equal for result in results.values()) or time.monotonic() > end:
                return list(results.values())
            time.sleep(1.0)

    def judge(self, faults: Sequence[Fault]) -> None:
        """Compares; what is newly wrong is put down to the last of these faults."""
        try:
            results = self.compare()
        except (NotRecoveredError, AssertionError) as error:
            self.record.failed(f"no comparison after {', '.join(fault.kind for fault in faults)}: {error}")
            raise
        lost = twice = 0
        for result in results:
            lost_before, twice_before = self._known.get(result.name, (0, 0))
            lost += max(0, result.lost - lost_before)
            twice += max(0, result.twice - twice_before)
            self._known[result.name] = result.lost, result.twice
            if not result.equal:
                self.say(f"{result.kind} {result.name}: {result.lost} lost, {result.twice} twice: {result.examples}")
        if faults:
            faults[-1].lost, faults[-1].twice = lost, twice
        elif lost or twice:
            self.record.failed(f"{lost} lost and {twice} twice without a fault", lost=lost, twice=twice)
        rows = sum(result.expected for result in results)
        wrong = [f"{r.name}: {r.lost} lost, {r.twice} twice" for r in results if not r.equal]
        self.record.note("comparison", rows=rows, results=len(results), wrong=wrong)
        self.say(f"compared {rows:,} rows of {len(results)} results: {', '.join(wrong) or 'equal'}")
