"""A stack of another project, as far as one can see it from outside: a runner, and below it what listens on a port."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_LISTEN = """
import socket, time
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
time.sleep(600)
"""
_RUN = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {_LISTEN!r}])
try:
    sys.stdin.read()
finally:
    child.kill()
"""


@dataclass(frozen=True)
class OtherStack:
    """It runs, and its component accepts connections."""

    project: Path
    home: Path
    port: int


@contextmanager
def running(folder: Path, component: str = "kafka", *, module: str = "deltaworks.stack.runner") -> Iterator[OtherStack]:
    """Until the block ends.

    Args:
        folder: of the project.
        component: what its runner says that listens.
        module: what is run; another one is not a runner.
    """
    home = folder / "home"
    environment = {**os.environ, "DELTAWORKS_PROJECT": str(folder), "DELTAWORKS_HOME": str(home)}
    with subprocess.Popen(
        [sys.executable, "-c", _RUN, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as runner:
        assert runner.stdout is not None and runner.stdin is not None
        try:
            port = int(runner.stdout.readline())
            (home / "run").mkdir(parents=True)
            state = {"pid": runner.pid, "components": [{"name": component, "ports": [port]}]}
            (home / "run" / "runner.state").write_text(json.dumps(state))
            yield OtherStack(folder, home, port)
        finally:
            runner.stdin.close()
