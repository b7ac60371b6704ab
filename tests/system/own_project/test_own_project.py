"""A team's own project: the wheel in an environment of its own, its company's Kafka, PostgreSQL and Airflow.

Nothing of the repository is in sight of it. Airflow is started by its own commands, and knows the rest from two
connections.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from deltalake import DeltaTable
from sqlalchemy import NullPool, create_engine

from deltaworks.control import heartbeat
from deltaworks.control.registry_schema import metadata
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack import postgres
from deltaworks.stack.airflow_api import AirflowApi, DagRun
from deltaworks.stack.lifecycle import down, up
from deltaworks.stack.ports import free_ports
from tests.support.live_stack import reachable, read_all
from tests.support.processes import running
from tests.support.secrecy import files_below, holding
from tests.support.terminal import on_a_terminal

ROOT = Path(__file__).parents[3]
_BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE", "lib", "infra")
_VERSION = 'version = "0.1.0"'
NEWER = "0.1.1"
HOUR_MS = 3_600_000
MIDNIGHT_MS = int(datetime(2026, 3, 2, tzinfo=UTC).timestamp() * 1000)
"""The end of the first day of the sample data, which begins at noon with four payments a minute."""
NAME = "payments"
DAG_IDS = {f"{NAME}__{kind}" for kind in ("stream", "replay", "quality")} | {
    f"streams__{kind}" for kind in ("reconcile", "days", "maintenance")
}
COMPONENTS = (
    ("api-server",),
    ("dag-processor",),
    ("scheduler", "--skip-serve-logs"),  # it would listen on every address; the API server reads the files
    ("triggerer", "--skip-serve-logs"),
)
MARK = "deltaworks/newer.py"
"""A module that only the newer wheel has."""
BUG = ".sum(lambda payment: payment.amount * 2,"
RIGHT = ".sum(lambda payment: payment.amount,"
DAGS = """
from deltaworks.airflow.dags import days_dag, maintenance_dag, pipelines_dags, reconcile_dag

globals().update(pipelines_dags(project="{project}", conn_id="deltaworks_default", owner="shop"))
reconcile = reconcile_dag(project="{project}", conn_id="deltaworks_default")
days = days_dag(project="{project}", conn_id="deltaworks_default")
maintenance = maintenance_dag(project="{project}", conn_id="deltaworks_default")
"""
PROD = """
[environments.prod]
bootstrap = "{bootstrap}"
control_url = {{ env = "REGISTRY_URL" }}
home = "{home}"
driver_memory = "512m"
"""


@dataclass(frozen=True)
class Team:
    """Somebody with the wheel, and what a company has: Kafka, PostgreSQL and, later, an Airflow."""

    folder: Path
    company: Settings
    """Where Kafka and PostgreSQL are; nothing else of it is used."""
    airflow_port: int

    @property
    def project(self) -> Path:
        return self.folder / "my-streams"

    @property
    def home(self) -> Path:
        """Where the streams of `prod` live."""
        return self.folder / "state"

    @property
    def settings(self) -> Settings:
        """For looking only."""
        return replace(self.company, home=self.home, project=self.project)

    @property
    def environment(self) -> dict[str, str]:
        return Settings.surroundings() | {
            "PATH": f"{self.folder / 'env' / 'bin'}:{os.environ['PATH']}",
            "DELTAWORKS_CACHE": str(self.company.cache),
        }

    @property
    def secrets(self) -> dict[str, str]:
        """To which the project's settings refer; Airflow has them in its connections."""
        return {"REGISTRY_URL": postgres.url(self.company, "deltaworks")}

    def run(self, *command: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
        done = subprocess.run(
            command,
            cwd=cwd or self.project,
            env=self.environment if environment is None else environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-6_000:]}{done.stderr[-6_000:]}"
        return done.stdout

    def in_production(self, *command: str) -> str:
        return self.run(*command, environment=self.environment | self.secrets | {"DELTAWORKS_ENVIRONMENT": "prod"})

    def install(self, wheel: Path) -> None:
        """With the versions that the tests run with, which are in the installer's cache."""
        python = str(self.folder / "env" / "bin" / "python")
        uv = [str(Path(sys.executable).parent / "uv"), "pip", "install", "--quiet", "--python", python]
        locked = ["--constraints", str(ROOT / "constraints.txt")]
        subprocess.run([*uv, *locked, f"deltaworks[all] @ file://{wheel}", "pytest"], check=True, cwd=self.folder)

    def edit(self, old: str, new: str) -> None:
        job = self.project / "jobs" / "payments.py"
        text = job.read_text()
        assert text.count(old) == 1
        job.write_text(text.replace(old, new))

    @property
    def airflow_url(self) -> str:
        return f"http://127.0.0.1:{self.airflow_port}"

    @property
    def of_airflow(self) -> dict[str, str]:
        """What its operators have set; deltaworks is not among it."""
        database = postgres.url(self.company, "airflow")
        return {
            "AIRFLOW_HOME": str(self.folder / "airflow"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.project / "dags"),
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.airflow_url}/execution/",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database,
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": database,
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.airflow_port),
            "AIRFLOW__API__BASE_URL": self.airflow_url,
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        }

    @property
    def password(self) -> str:
        """Of the registry."""
        lines = (line.split(":") for line in self.company.pgpass.read_text().splitlines())
        return next(line[4] for line in lines if line[3] == "deltaworks")

    def require_secrecy(self) -> None:
        """The password is in no file but the company's, in no row of the registry and in no command line."""
        ours = files_below(self.home, self.project, self.folder / "airflow")
        assert holding(ours, self.password) == []
        assert len(ours) > 500
        with closing(create_engine(self.secrets["REGISTRY_URL"], poolclass=NullPool).connect()) as registry:
            rows = [str(row) for table in metadata.tables.values() for row in registry.execute(table.select())]
        assert len(rows) > 2 and [row for row in rows if self.password in row] == []
        commands = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
        assert [command for command in commands if self.password in command] == []

    def airflow(self, *command: str) -> str:
        return self.run("airflow", *command, environment=self.environment | self.of_airflow)

    @contextmanager
    def with_airflow(self) -> Iterator[AirflowApi]:
        """Airflow's four processes, which end with the block; streams do not."""
        passwords = self.folder / "airflow" / "simple_auth_manager_passwords.json.generated"
        with ExitStack() as stack:
            started = [stack.enter_context(self._component(*command)) for command in COMPONENTS]
            health = AirflowApi(self.airflow_url, "", "")
            stack.callback(health.close)
            health.wait("all of it is there", lambda: _healthy(health.health()), timeout_s=180)
            password = json.loads(passwords.read_text())["admin"]
            with AirflowApi(self.airflow_url, "admin", password) as api:
                yield api
            for process in reversed(started):  # a task that is at work needs the API server to the end
                process.terminate()
                process.wait(120)

    @contextmanager
    def _component(self, *command: str) -> Iterator[subprocess.Popen[bytes]]:
        log = self.folder / "airflow" / f"{command[0]}.log"
        program = str(self.folder / "env" / "bin" / "airflow")
        environment = self.environment | self.of_airflow
        started = running([program, *command], environment=environment, log=log, cwd=self.folder)
        with said_when_it_fails(log), started as process:
            yield process

    def beat(self) -> heartbeat.Heartbeat:
        beat = heartbeat.read(self.settings.pipeline(NAME) / "heartbeat.json")
        assert beat is not None
        return beat

    def revenue(self) -> dict[tuple[str, int], Decimal]:
        """What the table says, by user and begin of the hour."""
        path = str(self.settings.tables / "payments_revenue")
        if not DeltaTable.is_deltatable(path):
            return {}
        rows = DeltaTable(path).to_pyarrow_table().to_pylist()
        return {(row["user_id"], int(row["window_start"].timestamp() * 1000)): row["revenue"] for row in rows}

    def paid(self) -> dict[tuple[str, int], Decimal]:
        """What it has to say, from the records in Kafka; none of them comes after its window has closed."""
        paid: dict[tuple[str, int], Decimal] = defaultdict(Decimal)
        for record in read_all(self.company.bootstrap, NAME):
            with suppress(ValueError):
                amount = Decimal(json.loads(record.value() or b"")["amount"])
                user, at_ms = (record.key() or b"").decode(), record.timestamp()[1]
                if amount > 0:
                    paid[user, at_ms // HOUR_MS * HOUR_MS] += amount
        return paid

    def pay(self, records: int) -> dict[tuple[str, int], Decimal]:
        """Writes sample data, so many records in all; returns what has been paid now."""
        self.in_production("deltaworks", "produce", NAME, "--records", str(records))
        return self.paid()


@contextmanager
def said_when_it_fails(log: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        print(f"{log.name}:\n{log.read_text()[-4_000:]}")
        raise


def twice(paid: Mapping[tuple[str, int], Decimal]) -> dict[tuple[str, int], Decimal]:
    return {key: 2 * amount for key, amount in paid.items()}


def _healthy(health: Mapping[str, Any]) -> bool:
    return all(health[part]["status"] == "healthy" for part in ("scheduler", "triggerer", "dag_processor"))


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """This version, and a newer one that has one more module."""
    folder = tmp_path_factory.mktemp("source")
    for name in _BUILT_FROM:
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy2
        copy(source, folder / name)
    project = folder / "pyproject.toml"
    this = build(folder, folder / "this")
    text = project.read_text()
    assert _VERSION in text
    project.write_text(text.replace(_VERSION, f'version = "{NEWER}"'))
    (folder / "lib" / MARK).write_text('"""New."""\n')
    return this, build(folder, folder / "newer")


def build(folder: Path, to: Path) -> Path:
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", to], cwd=folder, check=True)
    (built,) = to.glob("*.whl")
    return built


@pytest.fixture
def team(wheels: tuple[Path, Path]) -> Iterator[Team]:
    with tempfile.TemporaryDirectory(prefix="deltaworks-team-") as name:
        folder = reachable(Path(name))
        company = own_settings(folder / "company")
        team = Team(folder, company, free_ports(1)[0])
        uv = Path(sys.executable).parent / "uv"
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder / "env"], check=True)
        team.install(wheels[0])
        try:
            up(company, only=["kafka", "postgres"], tethered=True)
            yield team
        finally:
            down(team.settings)
            down(company)


def make_the_project(team: Team) -> None:
    team.run("deltaworks", "init", str(team.project), cwd=team.folder)
    assert "passed" in team.run("deltaworks", "test")
    with (team.project / "deltaworks.toml").open("a") as settings:
        settings.write(PROD.format(bootstrap=team.company.bootstrap, home=team.home))
    (team.project / "dags" / "streams.py").unlink()
    (team.project / "dags" / "deltaworks_dags.py").write_text(DAGS.format(project=team.project))
    team.edit(RIGHT, BUG)


def develop(team: Team) -> None:
    """On a Kafka of the project's own, with the settings of `dev`, which are the default."""
    broker, controller = free_ports(2)
    own = {"DELTAWORKS_BOOTSTRAP": f"127.0.0.1:{broker}", "DELTAWORKS_CONTROLLER_PORT": str(controller)}
    environment = team.environment | own
    command = [str(team.folder / "env" / "bin" / "deltaworks"), "dev", NAME, "--data", "50"]
    log = team.project / ".deltaworks" / "logs" / f"{NAME}.log"
    with said_when_it_fails(log), on_a_terminal(command, environment=environment, cwd=team.project) as said:
        said.until(r"running, batch \d+ \| \d+ records/s .*payments_revenue \d+")
        said.interrupt()
    team.run("deltaworks", "down", environment=environment)


def set_up_airflow(team: Team) -> None:
    """As `docs/how-to/airflow.md` says."""
    team.in_production("python", "-m", "deltaworks.stack.registry")
    team.airflow("db", "migrate")
    kafka = {"bootstrap.servers": team.company.bootstrap}
    ours = {"project": str(team.project), "environment": "prod", "kafka_conn_id": "kafka_default"}
    where = ["--conn-host", "127.0.0.1", "--conn-port", str(team.company.postgres_port)]
    registry = [*where, "--conn-password", team.password]
    add = ("connections", "add")
    team.airflow(*add, "kafka_default", "--conn-type", "kafka", "--conn-extra", json.dumps(kafka))
    team.airflow(*add, "deltaworks_default", "--conn-type", "deltaworks", *registry, "--conn-extra", json.dumps(ours))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_project_from_init_to_the_upgrade_of_the_wheel(team: Team, wheels: tuple[Path, Path]) -> None:
    make_the_project(team)
    develop(team)
    set_up_airflow(team)
    with team.with_airflow() as airflow:
        airflow.wait("its DAGs", lambda: {dag.dag_id for dag in airflow.dags()} == DAG_IDS)
        assert airflow.import_errors() == []

        paid = team.pay(4_000)
        deployed(airflow)
        airflow.wait("all is counted, twice", lambda: team.revenue() == twice(paid), timeout_s=120)

        before = team.beat()
        os.kill(before.pid, signal.SIGKILL)
        paid = team.pay(4_200)
        airflow.wait("it has healed", lambda: team.revenue() == twice(paid), timeout_s=120)
        assert team.beat().generation > before.generation

        team.edit(BUG, RIGHT)
        run_id = airflow.trigger(f"{NAME}__replay", {"reason": "counted twice", "approval": False})
        ended = airflow.wait("the replay", lambda: ended_run(airflow, f"{NAME}__replay", run_id), timeout_s=300)
        assert ended.state == "success", ended
        review(team)
        noon_to_midnight = {key: amount for key, amount in paid.items() if key[1] < MIDNIGHT_MS}
        assert team.revenue() == twice(paid) | noon_to_midnight
        known = paid, team.revenue()
        generation = team.beat().generation

    team.install(wheels[1])
    assert NEWER in team.run("deltaworks", "--version")
    paid = team.pay(4_300)

    with team.with_airflow() as airflow:
        airflow.wait("the stream goes on", lambda: team.revenue() == added(*known, paid, times=2))
        assert team.beat().generation == generation, "nothing has restarted it"
        known = paid, team.revenue()
        deployed(airflow)
        paid = team.pay(5_000)
        airflow.wait("the new version goes on", lambda: team.revenue() == added(*known, paid), timeout_s=120)
        assert team.beat().generation > generation
        assert (Path(psutil.Process(team.beat().pid).environ()["DELTAWORKS_CODE"]) / MARK).is_file()

        team.require_secrecy()
        stopped = airflow.trigger(f"{NAME}__stream", {"action": "stop"})
        assert airflow.wait("it stops", lambda: ended_run(airflow, f"{NAME}__stream", stopped)).state == "success"
    assert team.beat().state == "stopped"
    assert team.in_production("deltaworks", "quality", NAME)


def added(
    before: Mapping[tuple[str, int], Decimal],
    table: Mapping[tuple[str, int], Decimal],
    now: Mapping[tuple[str, int], Decimal],
    *,
    times: int = 1,
) -> dict[tuple[str, int], Decimal]:
    """What a table becomes when what was paid has gone from `before` to `now`; the bug counts it twice."""
    zero = Decimal(0)
    return {key: table.get(key, zero) + times * (amount - before.get(key, zero)) for key, amount in now.items()}


def review(team: Team) -> None:
    """The step of the workflow `replay.yml`, as a runner of GitHub does it, with code that counts three times."""
    workflow = yaml.safe_load((team.project / ".github" / "workflows" / "replay.yml").read_text())
    job = workflow["jobs"]["replay"]
    step = next(step for step in job["steps"] if step.get("name") == "Replay")
    before, tables = (team.project / "jobs" / "payments.py").read_text(), team.revenue()
    team.edit(RIGHT, BUG.replace("2", "3"))
    summary = team.folder / "summary.md"
    environment = team.environment | team.secrets | {"DELTAWORKS_ENVIRONMENT": job["env"]["DELTAWORKS_ENVIRONMENT"]}
    team.run("bash", "-e", "-c", step["run"], environment=environment | {"GITHUB_STEP_SUMMARY": str(summary)})

    text = summary.read_text()
    for part in ("`payments` on recorded history", "`revenue` in ", "the stream can go on with its state"):
        assert part in text, text
    assert team.revenue() == tables
    assert json.loads(team.in_production("deltaworks", "replays", NAME, "--json"))["unfinished"] == []
    (team.project / "jobs" / "payments.py").write_text(before)
    for report in team.project.glob("payments.md"):
        report.unlink()


def deployed(airflow: AirflowApi) -> None:
    run_id = airflow.trigger(f"{NAME}__stream")
    airflow.wait(
        "the stream is supervised",
        lambda: airflow.task(f"{NAME}__stream", run_id, "supervise").state == "deferred",
        timeout_s=180,
    )


def ended_run(airflow: AirflowApi, dag_id: str, run_id: str) -> DagRun | None:
    run = airflow.run(dag_id, run_id)
    return run if run.ended else None
