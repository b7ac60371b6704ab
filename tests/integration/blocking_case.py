"""Not collected: `test_interrupted.py` runs it in a pytest of its own, and ends that one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from deltaworks.stack.lifecycle import status
from tests.support.live_stack import LiveStack


def test_blocks(kafka: LiveStack) -> None:
    broker = next(process for process in status(kafka.settings) if process.name == "kafka")
    Path(os.environ["TMPDIR"], "broker").write_text(f"{broker.pid}\n")
    sys.stdin.read()
