"""A tethered process goes with its parent, with the signal that was asked for and as the user that was asked for."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from deltaworks.stack import tether

PARENT = """
import os, subprocess, sys
subprocess.Popen([*{tether!r}, str(os.getpid()), "/bin/sh", "-c", {script!r}])
sys.stdin.read()
"""


def said_by_a_child_whose_parent_is_killed(options: list[str], script: str, lines: int) -> list[str]:
    """The parent is killed after so many lines; what the child says ends when the child does."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT.format(tether=[*tether.COMMAND, *options], script=script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        said = [parent.stdout.readline() for _ in range(lines)]
        parent.kill()
        return [line.strip() for line in [*said, *parent.stdout]]


@pytest.mark.timeout(60)
def test_it_gets_the_signal_that_was_asked_for() -> None:
    script = "trap 'echo interrupted; exit' INT; echo up; while :; do sleep 0.05; done"

    assert said_by_a_child_whose_parent_is_killed(["--signal", "SIGINT"], script, 1) == ["up", "interrupted"]


@pytest.mark.timeout(60)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_the_tether_holds_after_a_change_of_user() -> None:
    script = "id -un; id -Gn; exec sleep 600"

    assert said_by_a_child_whose_parent_is_killed(["--user", "nobody"], script, 2) == ["nobody", "nogroup"]
