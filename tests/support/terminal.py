"""Commands on a terminal, as somebody who sits there sees them."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from deltaworks import clock
from tests.support.processes import ended

_WAIT_S = 120.0


@contextmanager
def on_a_terminal(command: Sequence[str], *, environment: Mapping[str, str], cwd: Path) -> Iterator[Said]:
    """Runs a command; it is killed at the end, unless it has ended."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        command, cwd=cwd, env={**environment, "TERM": "xterm", "COLUMNS": "120"}, stdin=its, stdout=its, stderr=its
    )
    os.close(its)
    said = Said(process, ours)
    threading.Thread(target=said.listen, daemon=True).start()
    with ended(process):
        yield said


class Said:
    """What the command shows."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int) -> None:
        self._process, self._terminal = process, terminal
        self._text, self._from = "", 0

    def listen(self) -> None:
        while True:
            try:
                heard = os.read(self._terminal, 65_536)
            except OSError:
                return
            if not heard:
                return
            self._text += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", heard.decode(errors="replace"))

    def until(self, wanted: str) -> None:
        """Until it shows this after what it was last waited for."""
        end = clock.ticks_s() + _WAIT_S
        while not (found := re.compile(wanted).search(self._text, self._from)):
            assert clock.ticks_s() < end, self._text[self._from :][-6_000:]
            assert self._process.poll() is None, self._text[-6_000:]
            time.sleep(0.05)
        self._from = found.end()

    def answer(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def interrupt(self) -> None:
        """Ctrl-C; it ends well."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(2 * _WAIT_S)  # it kills a stream that takes too long, and says so
        assert self._process.returncode == 0, self._text[-6_000:]
        assert "it has finished its batch" in self._text
