"""The orders pipeline on three secured brokers, which are killed in turn while records flow: `make check-brokers`.

Brokers, driver, JVM and workers get SIGKILL; the process runner brings brokers back. At the end every table, topic and
store is compared with its recomputation. No file, command line or environment that the run has left shows a secret.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from deltaworks import clock
from deltaworks.control import topics
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack.lifecycle import down, up
from deltaworks.stack.secured_kafka import NODES
from deltaworks.stack.state import ComponentState, read_state
from jobs.orders import pipeline
from tests.support.secrecy import files_below, holding
from tests.system.kills.stream_under_kills import Outcome, StreamUnderKills, print_outcome
from tests.system.sample_data import flowing

ROUNDS = 4
RATE = 60.0
_VICTIMS = ("driver", "worker", "jvm")
_BACK_S = 120.0


@dataclass
class Brokers:
    """The three brokers, and which of them was killed."""

    settings: Settings
    kills: list[str] = field(default_factory=list)

    def kill(self, node: int) -> None:
        """SIGKILL to a broker, once all three are ready."""
        name = f"kafka-{node}"
        self.await_all()
        psutil.Process(self._find(name).pid).kill()
        self.kills.append(name)
        print(f"kill of {name}", flush=True)

    def await_all(self) -> None:
        """Until all brokers are ready."""
        end = clock.ticks_s() + _BACK_S
        while any(self._find(f"kafka-{node}").phase != "ready" for node in NODES):
            assert clock.ticks_s() < end, read_state(self.settings.run)
            time.sleep(0.05)

    def _find(self, name: str) -> ComponentState:
        state = read_state(self.settings.run)
        found = state.find(name) if state is not None else None
        assert found is not None, name
        return found


def run(settings: Settings, work: Path, *, rounds: int, seed: int) -> tuple[Outcome, Brokers]:
    """Each round kills every broker once, and between them driver, worker and JVM; then everything is compared."""
    rng, brokers, orders = random.Random(seed), Brokers(settings), StreamUnderKills(settings, work)
    topics.prepare(settings.cluster, pipeline, pipeline.plan(), begun=False)
    with flowing(settings, RATE), orders.running():
        for _ in range(rounds):
            for node, victim in zip(rng.sample(NODES, len(NODES)), _VICTIMS, strict=True):
                brokers.kill(node)
                orders.kill(victim, rng)
    brokers.await_all()
    return orders.check(), brokers


def secrets_of(settings: Settings) -> list[str]:
    """The passwords and keys of the cluster's clients."""
    folder = settings.kafka / "secrets"
    return [file.read_text().strip() for file in (folder / "deltaworks.password", folder / "client.key")]


def files_with_secrets(settings: Settings, *folders: Path) -> list[str]:
    """Files in these folders that have one of the secrets, outside of the brokers' own."""
    written = [file for file in files_below(*folders) if settings.kafka not in file.parents]
    return holding(written, *secrets_of(settings))


def main() -> int:
    seed, begun = int(sys.argv[1]) if len(sys.argv) > 1 else 1, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="deltaworks-brokers-") as folder:
        work = Path(folder)
        settings = own_settings(work / "home", secured=True)
        up(settings, print, only=("kafka",), tethered=True)
        try:
            outcome, brokers = run(settings, work, rounds=ROUNDS, seed=seed)
            shown = files_with_secrets(settings, work)
        finally:
            down(settings)
    print(f"\n{len(brokers.kills)} broker kills, {len(outcome.kills)} others; {time.monotonic() - begun:.0f} s")
    print_outcome(outcome)
    print(f"  files with a secret: {shown or 'none'}")
    good = outcome.exact and not shown and len(brokers.kills) >= 12 and len(outcome.kills) >= 12
    print("EXACT" if good else "NOT EXACT, OR TOO FEW KILLS")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
