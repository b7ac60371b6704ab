"""Not collected: `test_runner.py` runs it as a process of its own. A runner of components that are small scripts.

`python -m tests.unit.stack.runner_case FOLDER`: `FOLDER/components.json` says what they are.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil

from deltaworks.processes import Registered
from deltaworks.stack.components import Component
from deltaworks.stack.native import Launch
from deltaworks.stack.runner import Pauses, Runner


@dataclass(frozen=True)
class ScriptHost:
    """Each component is Python code; it is ready when it has made a file of its name, and touches `NAME.beat`."""

    folder: Path
    codes: dict[str, str]

    def log(self, component: Component) -> Path:
        return self.folder / "logs" / f"{component.name}.log"

    def ports(self, component: Component) -> tuple[int, ...]:
        return ()

    def launch(self, component: Component) -> Launch:
        code = (
            f"import os, signal, subprocess, sys, time\nfrom pathlib import Path\nfolder = Path({str(self.folder)!r})\n"
        )
        code += f"ready, beat = folder / {component.name!r}, folder / '{component.name}.beat'\n"
        code += self.codes[component.name]
        return Launch(command=[sys.executable, "-c", code], environment=dict(os.environ))

    def is_ready(self, component: Component, since: datetime) -> bool:
        file = self.folder / component.name
        return file.is_file() and file.stat().st_mtime > since.timestamp()

    def heartbeat(self, component: Component) -> datetime | None:
        file = self.folder / f"{component.name}.beat"
        return datetime.fromtimestamp(file.stat().st_mtime, UTC) if file.is_file() else None

    def members(self, component: Component, pid: int, started_s: float) -> list[psutil.Process]:
        entry = Registered(name=component.name, kind="", pid=pid, started_s=started_s, command=(), log="")
        return entry.members()


def main() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    folder = Path(sys.argv[1])
    described = json.loads((folder / "components.json").read_text())
    components = [
        Component(
            name=name,
            software="deltaworks",
            command=(),
            ready="exit" if entry.get("step") else "http",
            ready_timeout_s=entry.get("ready_timeout_s", 30),
            stop_signal=entry.get("stop_signal", "SIGTERM"),
            stop_patience_s=entry.get("stop_patience_s", 10),
            memory_mb=1,
            silence_s=entry.get("silence_s", 0),
            after=tuple(entry.get("after", ())),
        )
        for name, entry in described.items()
    ]
    codes = {name: entry["code"] for name, entry in described.items()}
    pauses = Pauses(first_s=0.1, longest_s=0.4, healthy_s=60)
    Runner(ScriptHost(folder, codes), folder / "run", components, pauses).run_until_stopped()


if __name__ == "__main__":
    main()
