"""The platform check at full length: `make check-heal`.

SIGKILL of every component and of the driver, each alone, a scheduler that hangs, a minute without the API server, a
double deployment; orders flow all the time. Then every table and topic is compared with its recomputation, live and
after a drain.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack.lifecycle import down, up
from tests.support.live_stack import reachable
from tests.system.healing.platform_under_kills import AIRFLOW, PlatformUnderKills, different
from tests.system.sample_data import flowing

RATE = 50.0


def run(settings: Settings) -> bool:
    """Whether everything was as it should be."""
    with PlatformUnderKills(settings) as platform:
        return under_kills(platform)


def under_kills(platform: PlatformUnderKills) -> bool:
    """The kills, then the comparison."""
    with flowing(platform.settings, RATE):
        platform.deploy()
        for component in (*AIRFLOW, "supervisor", "postgres", "kafka"):
            platform.kill(component)
        platform.kill("airflow-scheduler", hangs=True)
        platform.without("airflow-api-server", 60)
        platform.kill_driver()
        platform.kill_driver("supervisor")
        platform.kill_driver("airflow-scheduler", "supervisor")
        platform.kill_driver_before_many_reconcilers()
        platform.deploy_twice_at_once()
    live = platform.settle()
    platform.stop()
    drained = platform.compare()
    for comparison in drained:
        verdict = "equal" if comparison.equal else f"DIFFERENT ({comparison.different})"
        counts = f"expected {comparison.expected}, found {comparison.found}"
        print(f"  {comparison.kind} {comparison.name}: {counts}: {verdict}")
    for line in (*different(live), *different(drained)):
        print(line)
    print(f"{len(platform.events)} events, {platform.generation} generations")
    return not different(live) and not different(drained)


def main() -> int:
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="deltaworks-heal-") as folder:
        settings = own_settings(reachable(Path(folder)) / "home")
        up(settings, print, tethered=True)
        try:
            exact = run(settings)
        finally:
            down(settings)
    print(f"{'EQUAL' if exact else 'NOT EQUAL'} after {time.monotonic() - begun:.0f} s")
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
