"""A pipeline under development: it runs on the stack of this home, and again whenever its code changes.

Edited code is tried first, in a process of its own. While it fails, or does not fit the checkpoint, the code of before
goes on running.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event
from types import FrameType

import typer
from rich.live import Live
from rich.text import Text

from deltaworks import clock
from deltaworks.cli.console import out
from deltaworks.cli.dev_screen import Screen, screen, summary
from deltaworks.control import code, edited, fence, heartbeat, outcome
from deltaworks.control.edited import Verdict
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings

_LOOK_S, _LINE_S, _SETTLE_S, _DRAIN_S = 0.5, 10.0, 0.3, 90.0
_ENDLESS = 1_000_000_000
Files = dict[str, tuple[int, int]]
"""Name of a file -> time of its last change and its size."""


@dataclass
class Development:
    """One pipeline under development."""

    settings: Settings
    name: str
    _driver: subprocess.Popen[bytes] | None = None
    _generation: int = 0
    _screen: Screen = field(init=False)
    _live: Live | None = None
    _printed_s: float = 0.0
    _ended: bool = False
    """Whether the end of the driver has been told."""

    def __post_init__(self) -> None:
        self.paths = PipelinePaths.of(self.settings, self.name)
        self.log = self.settings.logs / f"{self.name}.log"
        self._screen = Screen(name=self.name, log=self.log)

    def run(self, *, start_over: bool) -> None:
        """Until Ctrl-C, which raises `KeyboardInterrupt`, or only ends it: what a finalizer raises, Python drops."""
        with _interruptible() as interrupted:
            self._run(interrupted, start_over=start_over)

    def _run(self, interrupted: Event, *, start_over: bool) -> None:
        known = self._files()
        self._take(edited.ask(self.settings, self.name, over=start_over))
        while not interrupted.is_set():
            time.sleep(_LOOK_S)
            if (now := self._files()) != known:
                now = self._settled(now)
                changed = sorted(name for name in {*known, *now} if known.get(name) != now.get(name))
                known = now
                self._tell(f"changed: {', '.join(changed)}")
                self._take(edited.ask(self.settings, self.name))
            self._note_end()
            self._refresh()

    def stop(self) -> str:
        """Lets the driver finish its batch; returns how that went."""
        driver, self._driver = self._driver, None
        if driver is None or driver.poll() is not None:
            return "it did not run"
        driver.terminate()
        try:
            driver.wait(_DRAIN_S)
        except subprocess.TimeoutExpired:
            driver.kill()
            driver.wait()
            return f"killed, since it did not end within {_DRAIN_S:.0f} s"
        return "it has finished its batch"

    @property
    def _runs(self) -> bool:
        return self._driver is not None and self._driver.poll() is None

    def _take(self, verdict: Verdict) -> None:
        """Does what a verdict about the current code means."""
        self._screen.problem = ""
        match verdict.fit:
            case "goes on" | "starts":
                self._restart(verdict)
            case "fails":
                self._refuse(verdict.reason, "the code fails")
            case "another plan":
                self._ask(verdict)

    def _restart(self, verdict: Verdict) -> None:
        if self._runs:
            self._tell("draining")
            self.stop()
        self._screen.code = verdict
        self._generation = fence.read(self.paths.fence) + 1
        self._tell("starting" if verdict.fit == "starts" else "starting with its checkpoint")
        self._driver = self._launch("run", self.name)
        self._ended = False

    def _launch(self, *arguments: str) -> subprocess.Popen[bytes]:
        """A command that ends with this process."""
        from deltaworks.stack import tether

        self.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*tether.COMMAND, str(os.getpid()), sys.executable, "-m", "deltaworks.cli", *arguments],
                cwd=self.settings.project,
                env=self.settings.process_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _refuse(self, reason: str, what: str) -> None:
        self._screen.problem = reason
        self._tell(f"{what}; {'the code of before goes on' if self._runs else 'waiting for an edit'}", reason)

    def _ask(self, verdict: Verdict) -> None:
        """The checkpoint is of another plan: start over, or go on as before."""
        if not verdict.deleted:
            return self._refuse(verdict.reason, "the checkpoint does not fit, and this is not the Kafka of the home")
        what = f"{verdict.reason}\n  Starting over deletes the checkpoint and {', '.join(verdict.deleted)}."
        if not sys.stdin.isatty():
            return self._refuse(f"{what}\n  deltaworks dev {self.name} --start-over", "the checkpoint does not fit")
        with self._hidden():
            out.print(Text(what))
            agreed = typer.confirm("Start over?", default=False)
        if not agreed:
            return self._refuse(what, "the checkpoint does not fit")
        self.stop()
        self._take(edited.ask(self.settings, self.name, over=True))

    def _note_end(self) -> None:
        """Shows why the driver has ended, once."""
        if self._driver is None or self._ended or (exit_code := self._driver.poll()) is None:
            return
        self._ended = True
        word = outcome.read(self.paths.outcome(self._generation))
        reason = word.reason if word is not None and word.reason else f"exit code {exit_code}, see {self.log}"
        self._refuse(reason, "the stream has ended")

    # What changes

    def _files(self) -> Files:
        """The files of the code."""
        found = {}
        for name, path in code.sources(self.settings).items():
            try:
                stat = path.stat()
            except FileNotFoundError:  # an editor is replacing it
                continue
            found[name] = (stat.st_mtime_ns, stat.st_size)
        return found

    def _settled(self, files: Files) -> Files:
        """The files once an editor or a checkout has finished."""
        while True:
            time.sleep(_SETTLE_S)
            if (now := self._files()) == files:
                return now
            files = now

    # What is shown

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Shows the stream: on a terminal a page that changes, elsewhere lines."""
        if not out.is_terminal:
            yield
            return
        with Live(console=out, auto_refresh=False, screen=False, transient=False) as self._live:
            yield
        self._live = None

    @contextmanager
    def _hidden(self) -> Iterator[None]:
        """For a question."""
        if self._live is not None:
            self._live.stop()
        yield
        if self._live is not None:
            self._live.start()

    @contextmanager
    def sample_data(self, rate: float | None) -> Iterator[None]:
        """Writes sample data meanwhile."""
        if rate is None:
            yield
            return
        if not (self.settings.jobs / "sample_data" / f"{self.name}.py").is_file():
            raise ConfigurationError(
                f"There is no jobs/sample_data/{self.name}.py.", hint="leave out --data, or write the module"
            )
        writer = self._launch("produce", self.name, "--rate", str(rate), "--records", str(_ENDLESS))
        try:
            yield
        finally:
            writer.kill()
            writer.wait()

    def _tell(self, line: str, detail: str = "") -> None:
        self._screen.event = line
        if self._live is None:
            out.print(Text(f"{_now()}  {line}"))
            if detail:
                out.print(Text(detail))
        else:
            self._refresh()

    def _refresh(self) -> None:
        beat = heartbeat.read(self.paths.heartbeat)
        self._screen.beat = beat if beat is not None and beat.generation == self._generation else None
        if self._live is not None:
            self._screen.read(self.settings)
            self._live.update(screen(self._screen, out.size.height), refresh=True)
        elif self._screen.beat is not None and clock.ticks_s() - self._printed_s > _LINE_S:
            self._printed_s = clock.ticks_s()
            self._screen.read(self.settings)
            out.print(Text(f"{_now()}  {summary(self._screen)}"))


@contextmanager
def _interruptible() -> Iterator[Event]:
    """Set by Ctrl-C."""
    interrupted = Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def _now() -> str:
    return clock.utc_now().strftime("%H:%M:%S")
