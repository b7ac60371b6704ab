"""A live driver and a live executor that do not reach a server for a while, each alone.

Whoever is cut off from PostgreSQL goes on. Whoever is cut off from what a batch needs waits, or ends and is started
again; once the line is mended, the stream goes on. If another home takes over meanwhile, the first driver commits
nothing more, although what it has sent arrives.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from deltaworks import exits
from deltaworks.stack import ports
from tests.system.kills.cluster import RATE, Check, Stage, endpoint_of
from tests.system.kills.cut_off import Lines
from tests.system.kills.stream_under_kills import StreamUnderKills
from tests.system.sample_data import flowing

CUT_S = 90.0
OF_DRIVERS = ("postgres", "master", "s3", "kafka")
OF_EXECUTORS = ("s3", "kafka", "driver")
TAKEN_OVER = ("s3", "kafka")
"""From what a driver is cut off while another home takes over."""
_DRIVERS_PORTS = ("spark.driver.port", "spark.driver.blockManager.port")
_BACK_S = 240.0


@dataclass
class _Cuts:
    check: Check
    stage: Stage
    driver: Lines
    executor: Lines
    """Of the executors of worker 0."""
    stream: StreamUnderKills

    def each(self) -> None:
        for who, lines, servers in (("driver", self.driver, OF_DRIVERS), ("executor", self.executor, OF_EXECUTORS)):
            for server in servers:
                self._one(who, lines, server)

    def _one(self, who: str, lines: Lines, server: str) -> None:
        """Cuts one line; the stream runs before, and goes on afterwards."""
        self.stream.at_work(self.check.rng)
        starts, before = self.stream.outcome.starts, self.stream.batches()
        with lines.cut(server, silent=server == "master"):  # a driver that has its executors asks it nothing
            time.sleep(CUT_S)
            meanwhile = self.stream.batches() - before
        begun = time.monotonic()
        self.stream.until(self._goes_on, _BACK_S, f"the stream does not go on after {who} without {server}")
        restarts = self.stream.outcome.starts - starts
        print(
            f"{who} without {server} for {CUT_S:.0f} s: {meanwhile} batches meanwhile, {restarts} restarts; "
            f"at work {time.monotonic() - begun:.1f} s after it was mended",
            flush=True,
        )
        if (who, server) == ("driver", "postgres") and (restarts or meanwhile < CUT_S / 10):
            self.check.wrong.append(f"cuts: without PostgreSQL {meanwhile} batches, {restarts} restarts")

    def _goes_on(self) -> bool:
        self.stream.at_work(self.check.rng)
        return True


@contextmanager
def _cut_stage(check: Check) -> Iterator[_Cuts]:
    """A stream whose driver, and whose executors on worker 0, reach everything through lines of their own."""
    port, block_manager = ports.free_ports(2)
    own = dict(zip(_DRIVERS_PORTS, (str(port), str(block_manager)), strict=True))
    with check.stage("cuts", workers=0, cores=2, spark=own) as stage:
        shared = {
            "s3": [urlsplit(endpoint_of(stage.settings)).port or 80],
            "kafka": [int(each.rpartition(":")[2]) for each in check.settings.bootstrap.split(",")],
        }
        of_driver = shared | {"postgres": [check.settings.postgres_port], "master": [stage.cluster.port]}
        with (
            Lines(stage.cluster.folder, of_driver) as driver,
            Lines(stage.cluster.folder, shared | {"driver": [port, block_manager]}) as executor,
        ):
            stage.cluster.add_worker(0, executor.environment)
            stage.cluster.add_worker(1)
            stream = StreamUnderKills(
                stage.settings, stage.cluster.folder, environment=driver.environment, registered=True
            )
            yield _Cuts(check, stage, driver, executor, stream)


def cuts(check: Check) -> None:
    """Each cut alone; then those during which another home takes over."""
    with _cut_stage(check) as found:
        with flowing(check.settings, RATE), found.stream.running():
            found.each()
        check.judge("cuts", found.stream, found.stage)
    for server in TAKEN_OVER:
        with _cut_stage(check) as found:
            second = StreamUnderKills(check.other_home(found.stage), found.stage.cluster.folder, registered=True)
            with flowing(check.settings, RATE), found.stream.alone() as old:
                with found.driver.cut(server), second.running():
                    end = time.monotonic() + CUT_S
                    while time.monotonic() < end:
                        second.at_work(check.rng)
                if (code := old.wait(timeout=_BACK_S)) != exits.LEASE:
                    check.wrong.append(f"cuts: who was cut off from {server} ended with {code}")
            check.judge(f"taken over without {server}", second, found.stage)
