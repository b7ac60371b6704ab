"""Alerts of a real Prometheus, through a real Alertmanager, to a webhook: drivers without Spark say what happens.

All ranges are 10,000 times shorter, so a day takes nine seconds. Each fault has a pipeline or a connector of its own.
Connectors are what `deltaworks metrics --serve` makes of the REST interface of a worker, which is one of tests; their
registry, databases and topics are told what to say.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import msgspec
import pytest

from deltaworks.config import Values
from deltaworks.connect.slots import Slot
from deltaworks.connectors import dead_letters, overview, slots
from deltaworks.connectors.dead_letters import Count
from deltaworks.connectors.metrics import ConnectorMetrics, look
from deltaworks.control.heartbeat import Heartbeat, TableFacts
from deltaworks.control.reporter import Reporter, SilentReporter
from deltaworks.errors import SinkError
from deltaworks.metrics import connector_rules, prometheus, rules, stream
from deltaworks.metrics.endpoint import metered, served
from deltaworks.metrics.rule import CONNECTORS_JOB
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack import monitoring
from deltaworks.stack.ports import free_ports
from tests.support import polling
from tests.support.fake_connect import FILE_SOURCE, POSTGRES, FakeConnect, fake_connect
from tests.support.monitoring import HOME, Webhook, asked
from tests.unit.connectors.test_overview import World

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
until = partial(polling.until, timeout_s=240)
SCALE = 0.0001
HISTORY_S = 8 * 86_400 * SCALE + 15
"""How long all is well at first: a week, for what is compared with one."""

Fault = Callable[[Heartbeat, float], Heartbeat]
"""What becomes of a heartbeat, so many seconds after the fault began."""
FAULTS: Mapping[str, Fault] = {
    "Lagging": lambda beat, _: msgspec.structs.replace(beat, lag_seconds=1_000.0),
    "LagGrows": lambda beat, s: msgspec.structs.replace(beat, lag_seconds=min(890.0, 230 + 100 * s)),
    "BatchStuck": lambda beat, _: msgspec.structs.replace(beat, quiet_s=1_000.0, lag_records=7),
    "SlowBatches": lambda beat, s: msgspec.structs.replace(beat, batch_id=1_000 + int(5 * s), batch_seconds=14.0),
    "DeadLetters": lambda beat, _: msgspec.structs.replace(beat, dead_letters=9),
    "LateRecords": lambda beat, _: msgspec.structs.replace(beat, late_records=500),
    "StateGrowing": lambda beat, _: msgspec.structs.replace(beat, state_entries=900_000),
    "StateGrowsFaster": lambda beat, _: msgspec.structs.replace(beat, state_entries=450_000),
    "StaleSnapshots": lambda beat, s: msgspec.structs.replace(
        beat, tables={"orders": TableFacts(committed_at=beat.at - s - 1, stale_since=beat.at - s - 1)}
    ),
    "StreamFailed": lambda beat, _: msgspec.structs.replace(beat, state="failed"),
}


class Worker(World):
    """A worker of Kafka Connect with a connector for each alert, and what is asked beside it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, fake: FakeConnect) -> None:
        super().__init__(monkeypatch, folder, fake)
        self.letters, self.lags, self.slots = dict[str, int](), dict[str, int](), dict[str, Slot]()
        self.begun, self.is_away = dict[str, float](), False
        self.ended = threading.Event()
        for alert in OF_CONNECTORS:
            class_ = POSTGRES if alert in ("SlotEndangered", "SlotLost", "SourceLagGrows") else FILE_SOURCE
            config = {"connector.class": class_, "name": alert, "tasks.max": "1", "topic": "lines"}
            (self.folder / f"{alert}.json").write_text(json.dumps(config))
            self.book.deployed(alert, config, cluster="c", by="me")
            fake.add(alert, config)
        monkeypatch.setattr(slots, "look", lambda _, connector: self.slots.get(connector.name))
        monkeypatch.setattr(overview, "lags_soon", lambda *_, **__: self.lags)
        monkeypatch.setattr(dead_letters, "counts_soon", lambda *_: {
            name: Count(connector=name, topic="failed", total=n, recent=n, ever=n) for name, n in self.letters.items()
        })  # fmt: skip
        away = replace(self.settings, values=Values({}, tables={("connect", ""): {"url": "http://127.0.0.1:9"}}))
        self._there = {False: self.settings, True: away}

    def run(self, metrics: ConnectorMetrics) -> None:
        """Looks again and again, as `deltaworks metrics --serve` does."""
        while not self.ended.wait(0.1):
            for alert, fault in OF_CONNECTORS.items():
                begun = self.begun.get(alert)
                fault(self, alert, None if begun is None else time.time() - begun)
            look(self._there[self.is_away], metrics)

    def fails(self, name: str, s: float | None) -> None:
        """Its task has failed, or runs."""
        self.fake.connectors[name].tasks[0]["state"] = "RUNNING" if s is None else "FAILED"

    def is_given_up(self, name: str, s: float | None) -> None:
        """Likewise, and nothing restarts it."""
        self.fails(name, s)
        self.book.rows[name].gave_up = None if s is None else "5 restarts in a row have not helped"

    def drifts(self, name: str, s: float | None) -> None:
        """Somebody has changed it."""
        self.fake.connectors[name].config["topic"] = "lines" if s is None else "by-hand"

    def loses(self, name: str, s: float | None) -> None:
        """Its slot."""
        danger = "lost" if name == "SlotLost" else "unreserved"
        self.slots[name] = Slot(name="s", wal_status="reserved" if s is None else danger)

    def has_letters(self, name: str, s: float | None) -> None:
        """They stay."""
        self.letters[name] = self.letters.get(name, 0) if s is None else 5

    def lags_in_records(self, name: str, s: float | None) -> None:
        """It does so more and more."""
        self.lags[name] = 0 if s is None else int(10_000 * s)

    def lags_in_bytes(self, name: str, s: float | None) -> None:
        """Likewise."""
        self.slots[name] = Slot(name="s", wal_status="reserved", behind_bytes=0 if s is None else int(1e9 * s))

    def moves(self, name: str, s: float | None) -> None:
        """Its task goes from worker to worker."""
        if s is not None:
            task = self.fake.connectors[name].tasks[0]
            task["worker_id"] = "b:1" if task["worker_id"] == "a:1" else "a:1"


OF_CONNECTORS: Mapping[str, Callable[[Worker, str, float | None], None]] = {
    "ConnectorFailed": Worker.fails,
    "ConnectorGivenUp": Worker.is_given_up,
    "ConnectorDrifted": Worker.drifts,
    "SlotEndangered": Worker.loses,
    "SlotLost": Worker.loses,
    "DeadLettersOfASink": Worker.has_letters,
    "SinkLagGrows": Worker.lags_in_records,
    "SourceLagGrows": Worker.lags_in_bytes,
    "TasksMove": Worker.moves,
}
"""What happens to a connector, so many seconds after it began; None: all is well."""


@dataclass
class Driver:
    """Gives heartbeats until it is ended; `begun` is when its fault began."""

    alert: str
    reporter: Reporter
    generation: int = 3
    begun: float | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        start = time.time()
        while not self.ended.wait(0.2):
            now = time.time()
            beat = Heartbeat(
                pipeline=self.alert,
                generation=self.generation,
                query_id="q",
                state="running",
                pid=1,
                at=now,
                up_s=now - start,
                batch_id=int(now - start),
                batch_seconds=0.3,
                quiet_s=0.1,
                records_total=int(100 * (now - start)),
                lag_records=7,
                lag_seconds=0.5,
                lag_by_partition={"orders": {"0": 7}},
                state_entries=300_000,
                interval_s=1.0,
            )
            begun = self.begun
            self.reporter.beat(beat if begun is None else FAULTS[self.alert](beat, now - begun))


@contextmanager
def watching(home: Path, hook: Webhook) -> Iterator[Settings]:
    """Prometheus and Alertmanager of a home, with everything scaled, which tell a webhook."""
    ports = free_ports(2)
    settings = replace(own_settings(home), prometheus_port=ports[0], alertmanager_port=ports[1], alert_webhook=hook.url)
    monitoring.ensure_program(settings, monitoring.PROMETHEUS, print)
    folder = settings.monitoring
    (folder / "alerts.yml").write_text(rules.render(scale=SCALE))
    config = prometheus.prometheus_config(settings, folder / "alerts.yml", scale=SCALE)
    (folder / "prometheus.yml").write_text(config)
    (folder / "alertmanager.yml").write_text(prometheus.alertmanager_config(settings, scale=SCALE))
    with ExitStack() as processes:
        for name, own in (
            (monitoring.ALERTMANAGER, ["--storage.path", str(folder / "a"), "--cluster.listen-address="]),
            (monitoring.PROMETHEUS, ["--storage.tsdb.path", str(folder / "p"), "--rules.alert.resend-delay=1s"]),
        ):
            program = monitoring.ensure_program(settings, name, print)
            listen = f"--web.listen-address=127.0.0.1:{monitoring.port(settings, name)}"
            log = processes.enter_context((folder / f"{name}.log").open("wb"))
            process = processes.enter_context(
                subprocess.Popen(
                    [str(program.file), f"--config.file={folder / name}.yml", listen, *own],
                    cwd=program.folder,
                    stdout=log,
                    stderr=log,
                )
            )
            processes.callback(process.terminate)
            until(partial(monitoring.answers, settings, name))
        yield settings


def test_each_alert_reaches_the_webhook_once_and_clears(monkeypatch: pytest.MonkeyPatch) -> None:
    free = {"share": 0.9}
    monkeypatch.setattr(stream, "free_share", lambda _: free["share"])
    hook = Webhook()
    with tempfile.TemporaryDirectory(prefix="deltaworks-alerts-") as place, ExitStack() as running:
        settings = running.enter_context(watching(Path(place) / "home", hook))
        drivers = {}

        def start(alert: str, generation: int = 3) -> Driver:
            reporter = running.enter_context(metered(settings, alert, SilentReporter()))
            driver = Driver(alert=alert, reporter=reporter, generation=generation)
            thread = threading.Thread(target=driver.run)
            thread.start()
            running.callback(thread.join)
            running.callback(driver.ended.set)
            drivers[alert] = driver
            return driver

        def fired(*alerts: str, status: str = "firing") -> bool:
            return all(hook.told[alert, "" if alert in HOME else alert, status] for alert in alerts)

        for alert in (*FAULTS, "Restarts"):
            start(alert)
        time.sleep(HISTORY_S)
        assert not hook.told, "all is well"

        for alert in FAULTS:
            drivers[alert].begun = time.time()
        until(lambda: fired(*FAULTS))
        for alert in FAULTS:
            drivers[alert].begun = None
        until(lambda: fired(*FAULTS, status="resolved"))

        # Its hour is three seconds here, so nobody sees those that were between two drivers.
        for generation in range(6, 30, 3):
            drivers["Restarts"].ended.set()
            start("Restarts", generation)
            with suppress(AssertionError):
                until(lambda: fired("Restarts"), timeout_s=15)
                break
        assert fired("Restarts")
        until(lambda: fired("Restarts", status="resolved"))

        with pytest.raises(SinkError), metered(settings, "gone", SilentReporter()):
            raise SinkError("broken")
        until(lambda: hook.told["StreamFailed", "gone", "firing"])
        settings.metrics_target("gone").unlink()
        until(lambda: hook.told["StreamFailed", "gone", "resolved"])

        while not fired("DiskFillsSoon"):
            free["share"] = max(0.3, free["share"] - 0.03)
            time.sleep(0.5)
        until(lambda: fired("DiskFillsSoon", status="resolved"))
        free["share"] = 0.05
        until(lambda: fired("DiskFilling"))
        free["share"] = 0.5
        until(lambda: fired("DiskFilling", status="resolved"))

    of_connectors = {rule.name for rule in connector_rules.OF_CONNECTORS}
    assert set(hook.texts) == {rule.name for rule in rules.RULES} - of_connectors
    own = {key: count for key, count in hook.told.items() if key[0] == key[1] or not key[1]}
    assert {key: count for key, count in own.items() if key[2] == "firing" and count > 1} == {}
    texts = hook.texts["Lagging"]
    assert texts["summary"] == "Lagging: lagging" and "16m 40s" in texts["what"] and texts["since"]


def test_each_alert_of_connectors_reaches_the_webhook_once_and_clears(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = Webhook()
    with tempfile.TemporaryDirectory(prefix="deltaworks-alerts-") as place, ExitStack() as running:
        settings = running.enter_context(watching(Path(place) / "home", hook))
        worker = Worker(monkeypatch, Path(place), running.enter_context(fake_connect()))
        metrics = ConnectorMetrics()
        looking = threading.Thread(target=worker.run, args=(metrics,))
        looking.start()
        running.callback(looking.join)
        running.callback(worker.ended.set)
        seen = running.enter_context(ExitStack())
        seen.enter_context(served(metrics.registry, settings.connectors_target))

        def told(*alerts: str, status: str = "firing") -> None:
            def missing() -> list[str]:
                return [each for each in alerts if not hook.told[each, "" if each in HOME else each, status]]

            with suppress(AssertionError):
                until(lambda: not missing())
            assert missing() == [], status

        until(lambda: asked(settings, "deltaworks_connector_lag_records"))
        time.sleep(15)
        assert not hook.told, "all is well"

        worker.begun = dict.fromkeys(OF_CONNECTORS, time.time())
        told(*OF_CONNECTORS)
        worker.begun = {}
        told(*OF_CONNECTORS, status="resolved")
        gaps = asked(settings, f'sum(count_over_time((up{{job="{CONNECTORS_JOB}"}} == 0)[15m:500ms]))')

        worker.is_away = True
        told("ConnectAway")
        worker.is_away = False
        told("ConnectAway", status="resolved")
        seen.close()
        told("ConnectorsUnseen")
        seen.enter_context(served(metrics.registry, settings.connectors_target))
        told("ConnectorsUnseen", status="resolved")

    assert set(hook.texts) == {rule.name for rule in connector_rules.OF_CONNECTORS}
    own = {key: count for key, count in hook.told.items() if key[0] == key[1] or not key[1]}
    most = 1 + sum(
        int(each["value"][1]) for each in gaps
    )  # an answer that is late is none, and all is over for a while
    assert {key: count for key, count in own.items() if key[2] == "firing" and count > most} == {}
    texts = hook.texts["DeadLettersOfASink"]
    assert (
        "5 records" in texts["what"] and texts["page"] == "docs/runbooks.md#dead-letters-of-a-sink" and texts["since"]
    )
