"""A process beside a driver; how it is told to stop, and dies with us: `test_opening.py`."""

from __future__ import annotations

import os
import sys

import psutil
import pytest

from deltaworks.control import children


def test_a_child_has_our_variables_and_those_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATE_OF_A_JOB", "1")
    pids: list[int] = []
    said = "import os, sys; sys.exit(int(os.environ['RATE_OF_A_JOB']) + int(os.environ['ADDED']))"

    ended = children.run([sys.executable, "-c", said], {"ADDED": "40"}, is_told=lambda: False, begun=pids.append)

    assert ended == 41 and pids != [os.getpid()]


def test_no_child_is_left_if_we_cannot_wait_for_it() -> None:
    pids: list[int] = []

    def is_told() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        children.run([sys.executable, "-c", "input()"], {}, is_told=is_told, begun=pids.append)

    assert not psutil.pid_exists(pids[0])
