"""A few recorded cases through real Spark and Kafka; all of them: `make check-spark`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(900)
def test_cases_are_the_same_on_real_spark_with_one_and_with_several_partitions() -> None:
    command = [sys.executable, "-m", "tests.conformance.on_spark", "--curated", "3", "--random", "2"]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "5 of 5" in next(line for line in done.stdout.splitlines() if line.startswith("all "))
