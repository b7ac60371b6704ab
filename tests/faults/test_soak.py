"""Three minutes of the soak (`make soak`): some kinds of faults, and everything compared."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

KINDS = (
    *("kill driver", "kill JVM", "kill worker", "pause worker"),
    *("SIGKILL at a point", "error at a point", "clock back"),
)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_streams_are_exact_after_faults_of_some_kinds(tmp_path: Path) -> None:
    record = tmp_path / "soak.jsonl"
    command = [sys.executable, "-m", "tests.soak", "--minutes", "3", "--seed", "3", "--record", str(record)]
    done = subprocess.run([*command, "--kinds", ",".join(KINDS)], capture_output=True, text=True, check=False)
    said = done.stdout
    assert done.returncode == 0, said[-4000:] + done.stderr[-2000:]
    assert said.splitlines()[-1].endswith("kinds, 0 lost, 0 twice")
    faults = [event for line in record.read_text().splitlines() if (event := json.loads(line))["event"] == "fault"]
    assert faults  # how many fit in depends on what else the machine does
    assert all(fault["recovered_after_s"] is not None for fault in faults)
