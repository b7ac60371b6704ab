"""A replay on real Spark: task chunks in several workers, some of them killed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from deltaworks.settings import Settings

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(600)
def test_a_replay_in_several_workers_gives_what_the_stream_has_left_although_some_are_killed(tmp_path: Path) -> None:
    path = Settings.from_environment().joined_python_path
    orders = ["replay.step=kill", "replay.result_written=kill", "replay.local_committed=kill"]

    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.replaying", str(tmp_path), *orders],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    same, failed = [line.removeprefix("RESULT ") for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    points = "'replay.local_committed', 'replay.result_written', 'replay.step'"
    assert re.fullmatch(rf"3000 records in [3-9] chunks are the same, after \[{points}\]", same)
    assert failed.startswith("StreamsError: ") and "a record failed: ValueError" in failed
