"""Three minutes of the soak (`make soak`): some kinds of faults, and everything compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.soak.__main__ import main

KINDS = (
    *("kill driver", "kill JVM", "kill worker", "pause worker"),
    *("SIGKILL at a point", "error at a point", "clock back"),
)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_streams_are_exact_after_faults_of_some_kinds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = tmp_path / "soak.jsonl"
    code = main(["--minutes", "3", "--seed", "3", "--kinds", ",".join(KINDS), "--record", str(record)])
    said = capsys.readouterr().out
    assert code == 0, said[-4000:]
    assert said.splitlines()[-1].endswith("kinds, 0 lost, 0 twice")
    faults = [event for line in record.read_text().splitlines() if (event := json.loads(line))["event"] == "fault"]
    assert len(faults) >= 3
    assert all(fault["recovered_after_s"] is not None for fault in faults)
