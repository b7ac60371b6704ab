"""What stops everything also stops what somebody brings back meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest

from deltaworks import home, processes
from deltaworks.settings import Settings
from deltaworks.stack.lifecycle import down


def launched(settings: Settings) -> processes.Registered:
    log = settings.logs / "orders.log"
    return processes.launch(settings.run, name="orders", kind="pipeline", command=["sleep", "60"], log=log)


def test_a_stream_that_airflow_restarts_while_others_end_is_stopped_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings.from_environment({"DELTAWORKS_HOME": str(tmp_path / "home")})
    home.make(settings)
    started = [launched(settings)]
    stop = processes.stop

    def stopped(run: Path, entry: processes.Registered, **more: Any) -> bool:
        polite = stop(run, entry, **more)
        if len(started) == 1:
            started.append(launched(settings))
        return polite

    monkeypatch.setattr(processes, "stop", stopped)

    assert down(settings) == ["orders"]

    assert len(started) == 2
    assert [each.pid for each in started if psutil.pid_exists(each.pid) and each.alive] == []
