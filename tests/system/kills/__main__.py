"""The kill test at full length: `make check-kill`.

At least 20 SIGKILLs of driver, JVM and workers and a failure at every named point, while records flow; then everything
is compared: Delta tables, topics under `read_committed`, stores, rebuilt stores.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path

from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack.lifecycle import down, up
from tests.support.fault_points import DRIVER, RECOVERY, WORKER
from tests.system.kills.stream_under_kills import Outcome, StreamUnderKills, print_outcome
from tests.system.sample_data import flowing

KILLS = ("driver", "worker", "jvm", "worker", "worker", "driver", "worker") * 3
RATE = 60.0


def run(settings: Settings, work: Path, seed: int) -> Outcome:
    """Kills and failures while records flow, then the checks."""
    rng = random.Random(seed)
    orders = StreamUnderKills(settings, work)
    with flowing(settings, RATE), orders.running():
        for victim in KILLS:
            orders.kill(victim, rng)
        for point in (*WORKER, *DRIVER):
            orders.inject(point, rng.choice(["raise", "kill"]))
    orders.lose_local_stores()
    for point in RECOVERY:
        orders.order(point, "raise")
    return orders.check()


def main() -> int:
    seed, begun = int(sys.argv[1]) if len(sys.argv) > 1 else 1, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="deltaworks-kill-") as folder:
        settings = own_settings(Path(folder) / "home")
        up(settings, print, only=("kafka",), tethered=True)
        try:
            outcome = run(settings, Path(folder), seed)
        finally:
            down(settings)
    print(f"\n{len(outcome.kills)} SIGKILLs, {outcome.starts} starts of the driver, {time.monotonic() - begun:.0f} s")
    print(f"failures carried out at {len(set(outcome.injected))} named points")
    print_outcome(outcome)
    enough = len(outcome.kills) >= 20 and len(outcome.phases) >= 5
    print("EXACT" if outcome.exact and enough else "NOT EXACT" if enough else "TOO FEW KILLS OR PHASES")
    return 0 if outcome.exact and enough else 1


if __name__ == "__main__":
    sys.exit(main())
