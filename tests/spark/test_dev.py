"""`deltaworks dev`: edits of a new project's pipeline while it runs on a Kafka of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from deltaworks.kafka import admin
from deltaworks.lakehouse import catalog
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack.lifecycle import down
from tests.support.terminal import Said, on_a_terminal


@dataclass(frozen=True)
class Project:
    settings: Settings

    @property
    def job(self) -> Path:
        return self.settings.project / "jobs" / "payments.py"

    @property
    def environment(self) -> dict[str, str]:
        ours = {name: value for name, value in os.environ.items() if not name.startswith("DELTAWORKS_")}
        return ours | self.settings.environment()

    def edit(self, old: str, new: str) -> None:
        text = self.job.read_text()
        assert old in text
        self.job.write_text(text.replace(old, new))

    @contextmanager
    def dev(self, *options: str) -> Iterator[Said]:
        """The command on a terminal."""
        command = [sys.executable, "-m", "deltaworks.cli", "dev", "payments", *options]
        with on_a_terminal(command, environment=self.environment, cwd=self.settings.project) as said:
            yield said


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    settings = own_settings(tmp_path / "project" / ".deltaworks")
    settings = Settings.from_environment(
        {**os.environ, **settings.environment(), "DELTAWORKS_PROJECT": str(tmp_path / "project")}
    )
    command = [sys.executable, "-m", "deltaworks.cli", "init", str(settings.project)]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    try:
        yield Project(settings)
    finally:
        down(settings)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_edits_of_a_pipeline_that_runs(project: Project) -> None:
    with project.dev("--data", "50") as said:
        said.until("up kafka  started")
        said.until(r"running, batch \d+ \| \d+ records/s .*payments_revenue \d+")
        said.until(r"dead letters\s+payments-\d@\d+: deltaworks.errors.SerializationError: 14 bytes are not json")
        said.until("payments_revenue: .* rows, the last 5")

        project.edit("pipeline = Pipeline(", "raise ValueError('no amount')\npipeline = Pipeline(")
        said.until("the code fails; the code of before goes on")
        said.until(r"no amount\.\s+at jobs/payments\.py:\d+")
        project.edit("raise ValueError('no amount')\n", "# better\n")
        said.until("starting with its checkpoint")
        said.until(r"running, batch \d+")

        project.edit('store="revenue"', 'store="income"')
        said.until(r"was made for another plan:[\s\S]*?revenue")
        said.until(r"Starting over deletes the checkpoint and payments_dead_letters, payments_revenue, ")
        said.until(r"Start over\? \[y/N\]")
        said.answer("n\n")
        said.until("the checkpoint does not fit; the code of before goes on")
        said.until(r"running, batch \d+")
        said.interrupt()
    before = catalog.table(project.settings.tables, "payments_revenue")
    ends = admin.end_offsets(project.settings.cluster, ["payments"])

    with project.dev() as said:  # no code of before runs now
        said.until(r"Start over\? \[y/N\]")
        said.answer("y\n")
        said.until(r"running, batch \d+ \| .*lag 0 .*payments_revenue")
        said.interrupt()

    after = catalog.table(project.settings.tables, "payments_revenue")
    assert before.rows <= after.rows
    assert after.version < before.version, "it is a new table"
    assert admin.end_offsets(project.settings.cluster, ["payments"]) == ends, "its input stays"


def test_a_pipeline_starts_over_only_on_the_kafka_of_its_home(project: Project) -> None:
    from deltaworks.control import start_over
    from deltaworks.errors import ConfigurationError
    from deltaworks.pytest_plugin.live import LiveTables
    from jobs.orders import pipeline

    with pytest.raises(ConfigurationError, match="only on the Kafka of its home"):
        start_over.find(project.settings, pipeline)

    assert list(LiveTables(project.settings.tables)) == []
