"""The tutorial in the docs: every command of it, in order, in a folder of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from deltaworks import clock, processes
from deltaworks.control import heartbeat
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack.lifecycle import down
from tests.support.live_stack import has_read, reachable, settled_end_offsets

PAGE = Path(__file__).parents[2] / "docs" / "learn" / "tutorial.md"
_BLOCK = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)
_KILL = "pkill -9 -f "
_INSTALLED = "pip install "
"""What the environment of the tests has already."""


@dataclass
class Reader:
    """Somebody who types what the page says, and waits as a person would until it can be seen."""

    folder: Path
    settings: Settings
    said: list[str] = field(default_factory=list)

    def type(self, command: str) -> None:
        if command.startswith(_INSTALLED):
            return
        if command.startswith(_KILL):
            return self._kill(command.removeprefix(_KILL).strip('"'))
        if command.startswith("cd "):
            self.folder /= command.removeprefix("cd ")
            self.settings = replace(self.settings, project=self.folder)
            return
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DELTAWORKS_")}
        environment |= self.settings.environment() | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        del environment["DELTAWORKS_PROJECT"]  # the folder says which
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        self.said.append(f"$ {command}\n{done.stdout}{done.stderr}")

    def _kill(self, pattern: str) -> None:
        """Only this reader's: other tests may run pipelines of the same name."""
        driver = processes.find(self.settings.run, "payments")
        assert driver is not None
        commands = [" ".join(each.cmdline()) for each in driver.members()]
        assert any(pattern in each for each in commands), commands
        os.kill(driver.pid, signal.SIGKILL)

    def wait_for_the_stream(self) -> None:
        """Until it has committed all that is in its topic."""
        end = clock.ticks_s() + 180
        while True:
            beat = heartbeat.read(self.settings.pipeline("payments") / "heartbeat.json")
            ends = settled_end_offsets(self.settings.cluster, ["payments"])
            if beat is not None and beat.state == "running" and has_read(beat, ends) and heartbeat.age_s(beat) < 5:
                return
            assert clock.ticks_s() < end, beat
            time.sleep(0.1)


@pytest.fixture
def reader() -> Iterator[Reader]:
    with tempfile.TemporaryDirectory(prefix="deltaworks-tutorial-") as name:
        folder = reachable(Path(name))
        settings = own_settings(folder / "home")
        try:
            yield Reader(folder, settings)
        finally:
            down(settings)


def commands() -> list[str]:
    return [line for block in _BLOCK.findall(PAGE.read_text()) for line in block.splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_command_of_the_tutorial(reader: Reader) -> None:
    for command in commands():
        reader.type(command)
        if command.startswith(("deltaworks deploy", "deltaworks produce", "pkill")) and _runs(reader):
            reader.wait_for_the_stream()

    said = "\n".join(reader.said)
    assert "the test has found it" in said
    replayed = next(each for each in reader.said if each.startswith("$ deltaworks replay payments"))
    assert re.search(r"[1-9][\d,]* rows differ", replayed), replayed
    assert "stopped: " in reader.said[-1]


def _runs(reader: Reader) -> bool:
    return heartbeat.read(reader.settings.pipeline("payments") / "heartbeat.json") is not None
