"""`make check-replay`, or `python -u -m tests.system.replays [PART]...`; exit code 1: something is wrong."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from deltaworks.pytest_plugin.live import own_settings
from deltaworks.stack.lifecycle import down, up
from tests.support.live_stack import reachable
from tests.system.replays import approval, archive, equal, handed_over, kills, overlap, poisoned, publish
from tests.system.replays.findings import Findings
from tests.system.replays.project import Project

PARTS: dict[str, Callable[[Project, Findings], None]] = {
    "airflow": approval.check,
    "handover": handed_over.check,
    "equal": equal.check,
    "kills": kills.check,
    "publish": publish.check,
    "poisoned": poisoned.check,
    "overlap": overlap.check,
    "archive": archive.check,
}
"""Each may run alone. Parts have pipelines of their own, but `handover` wants `invoices` as nobody has run it, and
`equal` takes every job as it is."""


def main(names: list[str]) -> int:
    """Runs the parts one after the other on one stack."""
    if unknown := set(names) - PARTS.keys():
        sys.exit(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # as Ctrl-C: nothing is left behind
    summary, wrong = [], list[str]()
    with tempfile.TemporaryDirectory(prefix="deltaworks-replays-") as folder:
        top = reachable(Path(folder))
        project = Project.create(own_settings(top / "home"), top / "project")
        os.chdir(project.settings.project)  # Python looks there first, and so do the drivers that are deployed
        # Spark, PostgreSQL and Kafka beside it: Airflow only if it is asked for.
        needed = None if not names or "airflow" in names else ("kafka", "postgres", "registry")
        up(project.settings, print, only=needed, tethered=True)
        try:
            for name in names or PARTS:
                findings = Findings(name)
                begun = time.monotonic()
                try:
                    PARTS[name](project, findings)
                except Exception as error:
                    findings.holds(f"it ended with {type(error).__name__}: {error}", False)
                summary.append(findings.summary(time.monotonic() - begun))
                wrong += [f"{name}: {line}" for line in findings.wrong]
        finally:
            down(project.settings)
    print(f"\n{'part':9} {'checks':>6} {'rows compared':>13} {'seconds':>8}")
    print("\n".join([*summary, *wrong]))
    print("NOT AS IT SHOULD BE" if wrong else "ALL AS IT SHOULD BE")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
