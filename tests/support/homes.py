"""Homes with streams that nobody runs: the files that drivers leave, without drivers."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from deltaworks.clock import Sign
from deltaworks.control import fence, heartbeat, outcome
from deltaworks.control.batches import BatchRecord
from deltaworks.control.heartbeat import Heartbeat
from deltaworks.control.paths import PipelinePaths
from deltaworks.settings import Settings

_BEGIN_S = 1_790_000_000
"""When streams have begun to read."""
CLOSED_PORT = 9
"""Where no registry listens."""


def settings_of(home: Path, project: Path) -> Settings:
    """Settings of a home without a registry."""
    found = replace(Settings.from_environment({}), home=home, project=project)
    return replace(found, control_url=f"postgresql+psycopg://nobody@127.0.0.1:{CLOSED_PORT}/none")


@dataclass
class Stream:
    """A stream of a home.

    Args:
        settings: of the home.
        name: of the pipeline.
        rate: records per second that it reads.
        lag_s: how far behind it is.
        topics: what it reads, two partitions each.
    """

    settings: Settings
    name: str
    rate: float = 120.0
    lag_s: float = 0.4
    topics: tuple[str, ...] = ("lines",)
    entries: int = 12_000
    generation: int = 1
    paths: PipelinePaths = field(init=False)

    def __post_init__(self) -> None:
        self.paths = PipelinePaths.of(self.settings, self.name)
        self.paths.root.mkdir(parents=True, exist_ok=True)
        fence.advance(self.paths.fence, self.generation, self.name)

    def beat_at(self, at_s: float, *, factor: float = 1.0) -> Heartbeat:
        """A heartbeat of some time."""
        read = int(self.rate * (at_s - _BEGIN_S))
        waiting = int(self.rate * self.lag_s * factor)
        parts = {topic: {"0": read // 2, "1": read - read // 2} for topic in self.topics}
        lag = {topic: {"0": waiting // 3, "1": waiting - waiting // 3} for topic in self.topics}
        return Heartbeat(
            pipeline=self.name, generation=self.generation, query_id="q", state="running", pid=1, at=at_s,
            sign=Sign.of(at_s), up_s=7_000.0, batch_id=int(at_s % 100_000), batch_seconds=0.31 * factor,
            records_per_second=self.rate * factor, records_total=read, lag_records=waiting * len(self.topics),
            lag_seconds=self.lag_s * factor, lag_by_partition=lag, next_offsets=parts, state_entries=self.entries,
            batch_phases={"tasks": 0.2, "tables": 0.08, "after": 0.03}, dead_letters=2,
        )  # fmt: skip

    def beats(self) -> Heartbeat:
        """It is alive now."""
        beat = self.beat_at(time.time())
        heartbeat.write(self.paths.heartbeat, beat)
        return beat

    def fails(self, reason: str) -> None:
        """Its driver has ended."""
        heartbeat.write(self.paths.heartbeat, self.beat_at(time.time() - 40.0))
        outcome.write(self.paths.outcome(self.generation), self.generation, 65, reason)

    def past(self, hours: float, every_s: float) -> list[Heartbeat]:
        """Heartbeats of the last hours, and the record of a batch for each; the same ones each time."""
        rng, now_s = random.Random(self.name), time.time()
        times = [now_s - hours * 3_600 + every_s * step for step in range(int(hours * 3_600 / every_s))]
        found, offset, lines = [], 0, []
        for number, at_s in enumerate(times):
            busy = 1.0 + 0.5 * rng.random() + (2.5 if 0.55 < number / len(times) < 0.62 else 0.0)
            found.append(
                msgspec.structs.replace(
                    self.beat_at(at_s, factor=busy), state_entries=self.entries * number // len(times)
                )
            )
            count = int(self.rate * busy * every_s)
            lines.append(
                msgspec.json.encode(
                    BatchRecord(number, int(at_s * 1_000), {self.topics[0]: {"0": (offset, offset + count)}})
                )
            )
            offset += count
        self.paths.batches.mkdir(parents=True, exist_ok=True)
        (self.paths.batches / f"{0:012d}.jsonl").write_bytes(b"\n".join(lines) + b"\n")
        return found
