"""The command `metrics`: dashboards into a folder, and the metrics of connectors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from deltaworks.metrics.dashboards import files
from tests.support.fake_connect import FakeConnect, fake_connect
from tests.unit.connectors.test_overview import LINES

COMMAND = [sys.executable, "-c", "from deltaworks.cli import main; main()", "metrics"]


@pytest.fixture
def fake() -> Iterator[FakeConnect]:
    with fake_connect() as made:
        yield made


@pytest.fixture
def environment(tmp_path: Path, fake: FakeConnect) -> dict[str, str]:
    """Of a project with one connector, on a machine without a registry."""
    (connectors := tmp_path / "jobs" / "connectors").mkdir(parents=True)
    (connectors / "lines.json").write_text(json.dumps(LINES))
    (tmp_path / "deltaworks.toml").write_text(f'[connect]\nurl = "{fake.url}"\n')
    other = {name: value for name, value in os.environ.items() if not name.startswith("DELTAWORKS_")}
    return other | {"DELTAWORKS_HOME": str(tmp_path / "home"), "DELTAWORKS_POSTGRES_PORT": "9"}


def test_it_serves_the_figures_of_connectors_until_it_is_told_to_stop(
    tmp_path: Path, fake: FakeConnect, environment: dict[str, str]
) -> None:
    fake.add("lines", LINES, tasks=3)
    fake.fail("lines", 1, "java.io.IOException: no")
    serving = subprocess.Popen(
        [*COMMAND, "--serve"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert serving.stdout is not None
        address = serving.stdout.readline().strip()
        file = tmp_path / "home" / "metrics" / "connectors" / "connectors.json"
        assert f"http://{json.loads(file.read_text())[0]['targets'][0]}/metrics" == address
        until_s = time.monotonic() + 20
        while 'deltaworks_connector_failed_tasks{connector="lines"} 1.0' not in (shown := read(address)):
            assert time.monotonic() < until_s, shown
            time.sleep(0.1)
        assert 'deltaworks_connector_tasks{connector="lines"} 3.0' in shown
        assert "deltaworks_connect_up 1.0" in shown
    finally:
        serving.send_signal(signal.SIGTERM)
        _, said = serving.communicate(timeout=20)
    assert (serving.returncode, said) == (0, "")
    assert not file.exists()


def read(address: str) -> str:
    with urllib.request.urlopen(address, timeout=5) as answer:
        text: str = answer.read().decode()
        return text


def test_it_writes_dashboards_and_replaces_none_that_somebody_has_changed(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    def run(*options: str) -> subprocess.CompletedProcess[str]:
        command = [*COMMAND, "--dashboards", "grafana", *options]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert run().returncode == 0
    there = {file.name: file.read_text() for file in (tmp_path / "grafana").iterdir()}
    assert there == files()

    own = tmp_path / "grafana" / "deltaworks-stream.json"
    own.write_text("{}")
    refused = run()
    assert refused.returncode == 78
    assert "what is there is something else" in refused.stderr + refused.stdout
    assert own.read_text() == "{}"
    assert run("--force").returncode == 0
    assert own.read_text() == files()[own.name]
