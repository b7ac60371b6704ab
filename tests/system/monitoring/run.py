"""Streams of a home with Prometheus and Alertmanager, the page of the streams, and what kills them."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
import yaml
from confluent_kafka import Producer

from deltaworks import processes
from deltaworks.control import heartbeat
from deltaworks.control.heartbeat import Heartbeat
from deltaworks.kafka import admin
from deltaworks.metrics import prometheus, rules
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack import monitoring
from deltaworks.stack.lifecycle import down, up
from deltaworks.stack.ports import free_ports
from tests.support.live_stack import await_restart, free_pair, has_read, kill_component, reachable
from tests.support.monitoring import Webhook, asked
from tests.support.repeated import repeated
from tests.system.monitoring import job
from tests.system.monitoring.hooks import HOOK, faults_in
from tests.system.replays.project import Project, until

LONG, SHORT, RESTARTS = 0.0003, 0.03, 0.05
"""By what ranges are multiplied: a week is over soon, and three restarts fit into an hour. Each rule has one factor."""
_FACTORS = {"StateGrowing": LONG, "StateGrowsFaster": LONG, "DiskFillsSoon": LONG, "Restarts": RESTARTS}
"""Those of rules that look back for hours, days and a week, and of the one that counts restarts."""
WEEK_S = 8 * 86_400 * LONG
_SCRAPES, _TELLS = 0.2, 0.01
"""Factors of the intervals at which Prometheus asks drivers, and at which the Alertmanager waits for more to tell."""
_WAIT_S = 150.0
_SINK = "lines"
_LATE_MS = 86_400_000
Record = tuple[str, str, int]
"""Key, value, and how old it is, in milliseconds."""


def late(key: str, value: str) -> Record:
    """A record that is too late for each window."""
    return key, value, _LATE_MS


def write(settings: Settings, topic: str, records: Iterable[Record]) -> None:
    """Writes records, and waits until they are there."""
    producer = _producer(settings)
    now_ms = time.time_ns() // 1_000_000
    for key, value, age_ms in records:
        while True:
            try:
                producer.produce(topic, value, key, timestamp=now_ms - age_ms)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0, f"records of {topic} were not taken"


def flowing(settings: Settings, topics: Iterable[str], rate: float) -> AbstractContextManager[None]:
    """So many records per second and topic in the background, of a hundred keys, until the end of the block."""
    return repeated(_writing(settings, tuple(topics)), 1 / rate)


@contextmanager
def _writing(settings: Settings, topics: tuple[str, ...]) -> Iterator[Callable[[], object]]:
    producer, written = _producer(settings), 0

    def one_each() -> None:
        nonlocal written
        written += 1
        for topic in topics:
            producer.produce(topic, "x", f"word-{written % 100:02}")
        producer.poll(0)

    try:
        yield one_each
    finally:
        producer.flush()


def _producer(settings: Settings) -> Producer:
    return Producer(
        {"bootstrap.servers": settings.bootstrap, "log_level": 0, "linger.ms": 5, "partitioner": "murmur2_random"}
    )


@dataclass
class Page:
    """The server of the page. Nobody starts it again but this.

    Args:
        project: of the streams.
        faults: folder with the name of a mutation; None: it has none.
    """

    project: Project
    faults: Path | None

    def __post_init__(self) -> None:
        self._process, self._url, self._token = self._started()

    def _started(self) -> tuple[subprocess.Popen[str], str, str]:
        process = self.project.launch("ui", "--port", "0", "--airflow", "", faults=self.faults)
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        url, _, token = line.partition("/#token=")
        assert token, line + process.stdout.read()
        return process, url, token

    def says(self, path: str) -> Any:
        """The answer of the JSON API to an operator."""
        request = urllib.request.Request(f"{self._url}/api/{path}", headers={"Authorization": f"Bearer {self._token}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def kill(self) -> None:
        """SIGKILL; then it is started again."""
        self._process.kill()
        self._process.communicate()
        self._process, self._url, self._token = self._started()

    def close(self) -> None:
        """Ends it."""
        self._process.terminate()
        self._process.communicate(timeout=60)


@dataclass
class Run:
    """The streams of one stack, and what has become of them.

    Args:
        settings: of the stack, in whose home they are.
        hook: is told of alerts.
    """

    settings: Settings
    hook: Webhook
    kills: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    begun_s: dict[str, float] = field(default_factory=dict)
    """Since when a stream has been at work, on the monotonic clock."""

    def __post_init__(self) -> None:
        self.project = Project(self.settings)
        self.faults = faults_in(self.settings.home)
        for name in ("trace", "inject", "done"):
            (self.faults / name).mkdir(parents=True, exist_ok=True)

    def does(self, *words: str) -> str:
        """A command, which has to end well; what it printed."""
        answer = self.project.deltaworks(*words)
        assert answer.code == 0, f"{' '.join(words)}: exit code {answer.code}: {answer.text[-800:]}"
        return answer.text

    def lists(self, *words: str) -> Any:
        """The document that a command prints."""
        text = self.does(*words, "--json")
        return json.loads(text[text.index("{") : text.rindex("}") + 1])

    def deploy(self, name: str) -> None:
        """The stream runs, and is supervised."""
        began = time.time()
        self.does("deploy", name)
        self.at_work(name, began)
        self.begun_s.setdefault(name, time.monotonic())
        print(f"{name} runs after {time.time() - began:.0f} s", flush=True)

    def beat(self, name: str) -> Heartbeat | None:
        """The last heartbeat."""
        return heartbeat.read(self.settings.pipeline(name) / "heartbeat.json")

    def at_work(self, name: str, since: float) -> None:
        """Until a driver that runs has given a heartbeat since then."""

        def works() -> bool:
            beat, driver = self.beat(name), processes.find(self.settings.run, name)
            return (
                beat is not None and driver is not None and driver.alive and beat.pid == driver.pid
                and beat.state == "running" and beat.at > since
            )  # fmt: skip

        until(works, f"{name} runs", _WAIT_S)

    def caught_up(self, name: str) -> None:
        """Until a stream has read its topics, and its snapshots show all of it."""

        def up_to_date() -> bool:
            beat = self.beat(name)
            if beat is None or beat.state != "running" or beat.lag_records != 0 or beat.stale_snapshots:
                return False
            return has_read(beat, admin.end_offsets(self.settings.cluster, list(beat.lag_by_partition)))

        until(up_to_date, f"{name} has caught up", _WAIT_S)

    def driver(self, name: str) -> psutil.Process:
        """The driver of a stream."""
        entry = processes.find(self.settings.run, name)
        assert entry is not None and entry.alive, f"{name} has no driver"
        return psutil.Process(entry.pid)

    def kill_driver(self, name: str) -> None:
        """SIGKILL; the supervisor brings the stream back."""
        self.driver(name).kill()
        self.kills["driver"] += 1
        self.at_work(name, time.time())
        until(lambda: (beat := self.beat(name)) is not None and beat.batch_id is not None, "it ends a batch", _WAIT_S)

    def kill_worker(self, name: str) -> None:
        """SIGKILL to a process with tasks; the stream goes on."""

        def worker() -> psutil.Process | None:
            """Spark ends those that have nothing to do."""
            entry = processes.find(self.settings.run, name)
            assert entry is not None, f"{name} has no driver"
            tracing = {int(each.stem) for each in (self.faults / "trace").iterdir()} - {entry.pid}
            return next((each for each in entry.members() if each.pid in tracing), None)

        until(worker, f"{name} has a worker", _WAIT_S).kill()
        self.kills["worker"] += 1
        self.at_work(name, time.time() + 1)

    def kill_prometheus(self) -> None:
        """SIGKILL; the runner brings it back."""
        name = monitoring.PROMETHEUS
        await_restart(self.settings, name, kill_component(self.settings, name))
        self.kills[name] += 1
        until(lambda: asked(self.settings, "up == 1"), "Prometheus asks again", _WAIT_S)

    def page(self) -> Page:
        """The server of the page, with the mutation of the run."""
        return Page(self.project, self.faults if (self.faults / "mutation").exists() else None)


def apply_connector(run: Run) -> subprocess.Popen[str]:
    """A sink of files runs; gives the process that serves its metrics."""
    folder = run.settings.project / "jobs" / "connectors"
    folder.mkdir()
    (folder / f"{_SINK}.py").write_text(
        "from deltaworks.connect import FileSink\n\n"
        f"connector = FileSink(name={_SINK!r}, file={str(run.settings.home / 'lines.txt')!r}, topics=['watched'], "
        f"dead_letters='{_SINK}-dead-letters', dead_letters_replication=1, key_converter='string')\n"
    )
    run.does("connect", "apply", _SINK, "--wait", "90")
    return run.project.launch("metrics", "--serve")


def scaled_rules() -> str:
    """The rules as Prometheus reads them, each with its factor."""
    groups = {scale: yaml.safe_load(rules.render(scale=scale))["groups"][0] for scale in {SHORT, *_FACTORS.values()}}
    chosen = [
        next(rule for rule in groups[_FACTORS.get(name, SHORT)]["rules"] if rule["alert"] == name)
        for name in (rule_of.name for rule_of in rules.RULES)
    ]
    return str(yaml.safe_dump({"groups": [{**groups[SHORT], "rules": chosen}]}))


@contextmanager
def stack(folder: Path, hook: Webhook, *, tells: bool = True, connect: bool = True) -> Iterator[Settings]:
    """Kafka, PostgreSQL, Prometheus, Alertmanager and Kafka Connect in a home of their own, all ranges scaled.

    Args:
        folder: for home and project.
        hook: is told of alerts.
        tells: whether it is.
        connect: whether there is a Kafka Connect.
    """
    ports = free_ports(2)
    settings = replace(
        own_settings(reachable(folder) / "home"),
        prometheus_port=ports[0],
        alertmanager_port=ports[1],
        alert_webhook=hook.url if tells else None,
        metrics="on",
        cores=1,
        connect_port=free_pair(),
        connect_plugins=("file",),
        fault_hook=HOOK,
    )
    settings = Project.create(settings, folder / "project").settings
    for name in job.NAMES:
        (settings.project / "jobs" / f"{name}.py").write_text(job.file_of(name))
    config, manager, text = prometheus.prometheus_config, prometheus.alertmanager_config, scaled_rules()
    names = ("kafka", "registry", monitoring.PROMETHEUS, monitoring.ALERTMANAGER, *(("connect",) if connect else ()))
    with (
        patch.object(rules, "render", lambda **_: text),
        patch.object(prometheus, "prometheus_config", lambda *given: config(*given, scale=_SCRAPES)),
        patch.object(prometheus, "alertmanager_config", lambda *given: manager(*given, scale=_TELLS)),
    ):
        up(settings, print, only=names, tethered=True)
    try:
        yield settings
    finally:
        down(settings)
