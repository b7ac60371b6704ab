"""However pytest ends, its broker ends too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.support.processes import is_gone

CASE = Path(__file__).with_name("blocking_case.py")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["sigterm", "sigkill"])
def test_the_broker_goes_with_pytest(how: signal.Signals, tmp_path: Path) -> None:
    said = tmp_path / "broker"
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-s", str(CASE)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=CASE.parents[2],
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as run:
        deadline = time.monotonic() + 90
        while not (said.is_file() and said.read_text().endswith("\n")):
            assert run.poll() is None, "pytest ended before its broker was up"
            assert time.monotonic() < deadline, "no broker in 90 s"
            psutil.cpu_percent(interval=0.05)
        broker = psutil.Process(int(said.read_text()))

        run.send_signal(how)
        run.wait(60)

    broker_ended, _ = psutil.wait_procs([broker], timeout=30)
    assert broker_ended or is_gone(broker)
