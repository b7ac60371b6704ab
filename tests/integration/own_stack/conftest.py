"""A copy of the repository with a pipeline that nobody has seen before, and a whole stack of its own around it."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from deltaworks import processes
from deltaworks.files import replace_file
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack.airflow_api import AirflowApi
from deltaworks.stack.lifecycle import down, up
from tests.support.live_stack import kill_component, reachable

ROOT = Path(__file__).parents[3]

JOB = '''"""Words of {name}, counted per ten minutes."""

from datetime import timedelta

from deltaworks import DeadLetters, Pipeline, StreamsBuilder, TimeWindows, Topic


def topology(builder: StreamsBuilder) -> None:
    lines = builder.stream("{name}-lines", key=str, value=str)
    words = lines.flat_map_values(lambda line: [words_of(word) for word in line.split()], value=str)
    words.to("{name}-words")
    (
        words.group_by(lambda _, word: word, key=str, name="by-word")
        .windowed_by(TimeWindows(size=timedelta(minutes=10), grace=timedelta(0)))
        .count(store="{name}-counts")
        .to_delta("{name}_counts")
    )


def words_of(word: str) -> str:
    if word == "boom":
        raise ValueError("boom is no word")
    return word.lower()


pipeline = Pipeline(
    name="{name}",
    topology=topology,
    topics=(Topic("{name}-lines", partitions=2),),
    on_error="continue",
    dead_letters=DeadLetters(topic="{name}-dead", table="{name}_dead"),
)
'''


@dataclass(frozen=True)
class NewPipeline:
    """The copy, its stack, and the name of the pipeline that is new there."""

    name: str
    project: Path
    settings: Settings
    airflow: AirflowApi

    @property
    def dag_id(self) -> str:
        return f"{self.name}__stream"

    def deltaworks(self, *arguments: str) -> str:
        """What the command line of the copy says."""
        answer = subprocess.run(
            [sys.executable, "-m", "deltaworks.cli", *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.project,
            env={**os.environ, "DELTAWORKS_METRICS": "on", **self.settings.process_environment()},
        )
        assert answer.returncode == 0, answer.stdout + answer.stderr
        return answer.stdout

    def table(self, name: str) -> list[dict[str, object]]:
        """The rows of a table; none if it does not exist yet."""
        path = self.settings.tables / name
        if not DeltaTable.is_deltatable(str(path)):
            return []
        return list(DeltaTable(path).to_pyarrow_table().to_pylist())

    def deployed(self, conf: dict[str, object] | None = None) -> str:
        """Deploys through Airflow and waits until the stream is supervised; the id of the run."""
        run_id = self.airflow.trigger(self.dag_id, conf)
        self.supervised(run_id)
        return run_id

    def supervised(self, run_id: str, *, timeout_s: float = 180.0) -> None:
        """Waits until a run watches the stream."""
        self.airflow.wait(
            "the stream is supervised", lambda: self.state(run_id, "supervise") == "deferred", timeout_s=timeout_s
        )

    def state(self, run_id: str, task_id: str) -> str | None:
        return self.airflow.task(self.dag_id, run_id, task_id).state

    def kill(self, *components: str) -> None:
        """SIGKILL of components of the stack, one after the other."""
        for component in components:
            kill_component(self.settings, component)

    def kill_driver(self, name: str) -> None:
        """SIGKILL of the driver of a pipeline."""
        entry = processes.find(self.settings.run, name)
        assert entry is not None
        os.kill(entry.pid, signal.SIGKILL)


@pytest.fixture(scope="package")
def new_pipeline() -> Iterator[NewPipeline]:
    """Nothing is changed in the copy but one file in `jobs/`. The stream does not run yet."""
    name = f"words{secrets.token_hex(3)}"
    with stack_of_a_copy(name, lambda project: write_job(project, name, JOB.format(name=name))) as stack:
        yield stack


@contextmanager
def stack_of_a_copy(name: str, prepare: Callable[[Path], object], **changes: Any) -> Iterator[NewPipeline]:
    """A copy of the repository, and its stack, until the end of the block.

    Args:
        name: of a pipeline that `prepare` writes.
        prepare: is called with the copy before anything starts.
        changes: settings other than the usual ones.
    """
    with tempfile.TemporaryDirectory(prefix="deltaworks-copy-") as folder:
        top = reachable(Path(folder))
        project = copied(top / "project")
        prepare(project)
        home = top / "home"
        home.mkdir()
        package = project / "lib"
        settings = replace(
            own_settings(reachable(home)),
            project=project,
            infra=project / "infra",
            python_path=(package, project, package),
            **changes,
        )
        try:
            up(settings, tethered=True)
            with AirflowApi.of(settings) as airflow:
                dag_id = f"{name}__stream"
                airflow.wait("the new pipeline has a DAG", lambda: dag_id in {dag.dag_id for dag in airflow.dags()})
                yield NewPipeline(name, project, settings, airflow)
        finally:
            down(settings)


def job_file(project: Path, name: str) -> Path:
    """Where a project has a pipeline."""
    return project / "jobs" / f"{name}.py"


def write_job(project: Path, name: str, text: str) -> None:
    """Writes a pipeline in one step, as Airflow may be reading it."""
    replace_file(job_file(project, name), text.encode())


def copied(to: Path) -> Path:
    """The files that belong to the repository, new ones included."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a git clone: there is no list of the files that belong to it")
    for file in filter(None, listed.stdout.split("\0")):
        if (ROOT / file).is_file():
            (to / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, to / file)
    return to
